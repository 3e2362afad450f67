-- Strands without jobs, and the gates of their keys. ?1 how many at most. Index windlass_lane_idle.
select s.lane, s.queue, s.type, s.key, s.counted, g.gate
from windlass_lane as s
left join windlass_gate as g on g.queue = s.queue and g.name = s.key
where s.key <> '' and s.delayed + s.scheduled + s.running + s.retrying = 0
limit ?1;
