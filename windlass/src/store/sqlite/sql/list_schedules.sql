-- Schedules by name after a name. ?1 name, ?2 how many at most. Primary key.
select name, timing, missed, overlap, from_code, type, queue, priority, options, content_type, payload, version, paused, created_at, updated_at, next_at, last_slot, last_job, fired, last_error
from windlass_schedule
where name > ?1
order by name
limit ?2;
