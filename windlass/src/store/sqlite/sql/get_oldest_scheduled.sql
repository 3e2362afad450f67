-- Where a lane's first SCHEDULED job of a priority stands. ?1 lane, ?2 priority, ?3 now. Primary key.
select min(at)
from windlass_ready
where lane = ?1 and priority = ?2 and at <= ?3;
