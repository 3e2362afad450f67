-- The first jobs of a strand in the order of claims. ?1 lane, ?2 now, ?3 how many at most. Primary key.
select priority, at, seq
from windlass_ready
where lane = ?1 and (deadline is null or deadline > ?2)
order by priority, at, seq
limit ?3;
