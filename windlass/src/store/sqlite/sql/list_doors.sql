-- The plain lanes of a controlled queue, the gates of their types, and how many jobs have not been sorted to their keys. ?1 queue.
-- Unique (queue, key, type).
select d.lane, d.type, d.delayed + d.scheduled + d.retrying as waiting, d.counted, g.gate
from windlass_lane as d
left join windlass_gate as g on g.queue = d.queue and g.name = 't:' || d.type
where d.queue = ?1 and d.key = '';
