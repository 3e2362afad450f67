-- The turns of the keys of a controlled queue, as they are kept with their strands. ?1 queue. Unique (queue, key, type).
select key, max(turn) as turn
from windlass_lane
where queue = ?1 and key > 'k:'
group by key
having max(turn) > 0;
