-- The lanes of a queue in which jobs wait. ?1 queue. Unique (queue, type, key).
select lane, type
from windlass_lane
where queue = ?1 and delayed + scheduled + retrying > 0;
