-- A job that waits where it was submitted to. ?1 lane, ?2 priority, ?3 at, ?4 seq. Primary key.
select priority, deadline, flags, attempt, failures, lost, generation, version, coalesce(position, at) as position, coalesce(scheduled_at, iif(kind = 0, at, null)) as scheduled_at, started_at, coalesce(updated_at, at) as updated_at, at, kind, lane
from windlass_ready
where lane = ?1 and priority = ?2 and at = ?3 and seq = ?4;
