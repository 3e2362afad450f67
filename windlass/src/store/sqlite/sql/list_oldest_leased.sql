-- RUNNING jobs after a place, oldest first. ?1 seq, ?2 how many at most. Primary keys.
select windlass_leased.seq, windlass_job.lane, windlass_job.created_at
from windlass_leased
join windlass_job on windlass_job.seq = windlass_leased.seq
where windlass_leased.seq > ?1
order by windlass_leased.seq
limit ?2;
