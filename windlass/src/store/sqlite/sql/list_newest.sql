-- Jobs before a place, newest first: enough to see whether they can match. ?1 seq, ?2 how many at most. Primary key.
select seq, lane, created_at
from windlass_job
where seq < ?1
order by seq desc
limit ?2;
