-- A job that waits where it was submitted to. ?1 lane, ?2 priority, ?3 at, ?4 seq. Primary key.
select priority, deadline, flags, attempt, failures, lost, generation, version, coalesce(position, at), coalesce(scheduled_at, iif(kind = 0, at, null)), started_at, coalesce(updated_at, at), at, kind
from windlass_waiting
where lane = ?1 and priority = ?2 and at = ?3 and seq = ?4;
