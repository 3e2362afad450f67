-- Lifetimes that are over. ?1 now, ?2 how many at most. Primary key.
select deadline, seq
from windlass_lifetime
where deadline <= ?1
order by deadline, seq
limit ?2;
