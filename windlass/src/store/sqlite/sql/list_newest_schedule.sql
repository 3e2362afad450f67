-- Jobs of a schedule before a place, newest first. ?1 seq, ?2 how many at most, ?3 schedule. Index windlass_job_schedule.
select seq, lane, created_at
from windlass_job
where schedule = ?3 and seq < ?1
order by seq desc
limit ?2;
