-- An ended job. ?1 seq. Primary key.
select priority, deadline, flags, attempt, failures, lost, generation, version, position, scheduled_at, started_at, updated_at, state, ended, outcome, token, worker, reason, result_type, result
from windlass_done
where seq = ?1;
