-- A job that waits elsewhere than where it was submitted to. ?1 seq. Index windlass_waiting_moved.
select priority, deadline, flags, attempt, failures, lost, generation, version, coalesce(position, at), coalesce(scheduled_at, iif(kind = 0, at, null)), started_at, coalesce(updated_at, at), at, kind
from windlass_waiting
where seq = ?1 and moved = 1;
