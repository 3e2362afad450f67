-- Every strand of a queue, with the lane that its jobs came from. ?1 queue. Unique (queue, key, type).
select s.lane, b.lane as base
from windlass_lane as s join windlass_lane as b on b.queue = s.queue and b.type = s.type and b.key = ''
where s.queue = ?1 and s.key <> '';
