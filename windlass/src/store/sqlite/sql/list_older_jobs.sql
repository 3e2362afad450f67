-- The jobs after the newest one whose standard lifetime is known to be over, in order, and whether each was submitted by
-- a moment. ?1 the moment, ?2 how many at most. Primary key.
select seq, created_at, created_at <= ?1 as is_older
from windlass_job
where seq > (select outlived from windlass_store where only_row = 1)
order by seq
limit ?2;
