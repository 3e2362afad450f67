-- A lane's names. ?1 lane.
select queue, type, key
from windlass_lane
where lane = ?1;
