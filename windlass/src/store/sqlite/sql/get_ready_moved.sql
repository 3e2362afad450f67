-- A job that waits elsewhere than where it was submitted to. ?1 seq. Index windlass_ready_moved.
select priority, deadline, flags, attempt, failures, lost, generation, version, coalesce(position, at) as position, coalesce(scheduled_at, iif(kind = 0, at, null)) as scheduled_at, started_at, coalesce(updated_at, at) as updated_at, at, kind, lane
from windlass_ready
where seq = ?1 and moved = 1;
