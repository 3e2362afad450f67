-- A RUNNING job. ?1 seq. Primary key.
select priority, deadline, flags, attempt, failures, lost, generation, version, position, scheduled_at, started_at, started_at as updated_at, expires_at, token, worker, cancel, lane
from windlass_leased
where seq = ?1;
