-- A job's closed attempts, oldest first, but for one that ended it. ?1 seq. Primary key.
select version, number, generation, started_at, ended_at, outcome, worker, failure
from windlass_attempt
where seq = ?1
order by version;
