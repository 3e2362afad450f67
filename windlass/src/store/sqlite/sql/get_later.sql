-- When time will open the next strand. ?1 queue, ?2 now. Index windlass_lane_later.
select min(look)
from windlass_lane
where queue = ?1 and look > ?2 and look > 0;
