-- Jobs of a lane and priority that can be claimed, in claim order. ?1 lane, ?2 priority, ?3 and ?4 the place (at, seq) after which, ?5 now,
-- ?6 how many at most. Primary key.
select at, seq
from windlass_ready
where lane = ?1 and priority = ?2 and (at, seq) > (?3, ?4) and at <= ?5 and (deadline is null or deadline > ?5)
order by at, seq
limit ?6;
