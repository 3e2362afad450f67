-- The first due jobs of a strand and priority. ?1 lane, ?2 priority, ?3 now, ?4 how many at most. Primary key.
select at, seq
from windlass_ready
where lane = ?1 and priority = ?2 and at <= ?3 and (deadline is null or deadline > ?3)
order by at, seq
limit ?4;
