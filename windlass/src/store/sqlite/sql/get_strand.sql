-- The key of a strand. ?1 lane. Primary key.
select key
from windlass_lane
where lane = ?1;
