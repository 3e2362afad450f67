-- Schedules by name. $1 after this name, or null; $2 how many.
select record
from windlass.schedule
where $1::text is null or name collate "C" > $1::text
order by name collate "C"
limit $2::bigint
