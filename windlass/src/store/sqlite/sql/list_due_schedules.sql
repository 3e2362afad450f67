-- Names of the schedules to look at. ?1 now.
select name
from windlass_schedule
where paused = 0 and (next_at is null or next_at <= ?1)
order by name;
