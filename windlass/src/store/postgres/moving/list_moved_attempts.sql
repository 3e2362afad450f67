-- Closed attempts of jobs with what is stored of their tokens, oldest first. $1 sequences. By attempt_pkey.
select seq, version, token, number, generation, outcome, started_at, ended_at, worker, failure
from windlass.attempt
where seq = any($1::bigint[])
order by seq, version
