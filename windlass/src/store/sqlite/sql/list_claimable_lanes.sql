-- The lanes of a queue in which jobs wait. ?1 queue. Unique (queue, key, type).
select lane, type
from windlass_lane
where queue = ?1 and key = '' and delayed + scheduled + retrying > 0;
