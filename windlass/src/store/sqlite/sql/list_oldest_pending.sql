-- PENDING jobs after a place, oldest first. ?1 seq, ?2 how many at most. Primary keys.
select windlass_pending.seq, windlass_job.lane, windlass_job.created_at
from windlass_pending
join windlass_job on windlass_job.seq = windlass_pending.seq
where windlass_pending.seq > ?1
order by windlass_pending.seq
limit ?2;
