-- A job's closed attempts with their tokens, oldest first. ?1 seq. Primary key.
select version, number, generation, started_at, ended_at, outcome, token, worker, failure
from windlass_attempt
where seq = ?1
order by version;
