-- What was submitted. ?1 seq. Primary key.
select id, lane, priority, inherited, created_at, first_at, depth, workflow, schedule, slot, spawned_by, depends_on, options, content_type, payload
from windlass_job
where seq = ?1;
