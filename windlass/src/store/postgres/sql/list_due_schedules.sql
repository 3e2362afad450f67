-- Schedules to look at, by name. $1 the time.
select record
from windlass.schedule
where not paused and (next_at is null or next_at <= $1::bigint)
order by name collate "C"
