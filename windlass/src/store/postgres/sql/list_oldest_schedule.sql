-- Jobs of a schedule after a place, oldest first. $1 the place, $2 how many at most, $3 the schedule. By job_schedule.
select seq, lane, created_at
from windlass.job
where schedule = $3::text and seq > $1::bigint
order by seq asc
limit $2::bigint
