-- Dead jobs of a fault after a place, oldest first. ?1 seq, ?2 how many at most, ?3 fingerprint. Index windlass_done_fault.
select windlass_done.seq, windlass_job.lane, windlass_job.created_at
from windlass_done
join windlass_job on windlass_job.seq = windlass_done.seq
where windlass_done.fingerprint = ?3 and windlass_done.seq > ?1
order by windlass_done.seq
limit ?2;
