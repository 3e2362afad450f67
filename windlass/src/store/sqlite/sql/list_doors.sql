-- The lanes of a controlled queue whose jobs have not been sorted to their keys. ?1 queue. Unique (queue, type, key).
select lane, type
from windlass_lane
where queue = ?1 and key = '' and delayed + scheduled + retrying > 0;
