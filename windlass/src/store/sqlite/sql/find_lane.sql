-- A lane by name. ?1 queue, ?2 type. Unique (queue, key, type).
select lane
from windlass_lane
where queue = ?1 and type = ?2 and key = '';
