-- Jobs of a schedule before a place, newest first. $1 the place, $2 how many at most, $3 the schedule. By job_schedule.
select seq, lane, created_at
from windlass.job
where schedule = $3::text and seq < $1::bigint
order by seq desc
limit $2::bigint
