-- The lowest turn of the open strands of a type, of the next level and class that has any. ?1 queue, ?2 type, ?3 level, ?4 class.
-- Index windlass_lane_open.
select level, class, turn
from windlass_lane
where queue = ?1 and type = ?2 and look = 0 and (level, class) > (?3, ?4)
order by level, class, turn
limit 1;
