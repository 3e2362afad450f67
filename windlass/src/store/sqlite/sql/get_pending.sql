-- A PENDING job. ?1 seq. Primary key.
select priority, deadline, flags, attempt, failures, lost, generation, version, position, scheduled_at, started_at, updated_at, run_at, waits_all, waits_any
from windlass_pending
where seq = ?1;
