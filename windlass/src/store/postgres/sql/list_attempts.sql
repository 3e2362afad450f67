-- The closed attempts of a job, oldest first. $1 sequence. By attempt_pkey.
select version, number, generation, outcome, started_at, ended_at, worker, failure
from windlass.attempt where seq = $1::bigint order by version
