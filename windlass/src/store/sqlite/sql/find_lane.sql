-- A lane by name. ?1 queue, ?2 type. Unique (queue, type, key).
select lane
from windlass_lane
where queue = ?1 and type = ?2 and key = '';
