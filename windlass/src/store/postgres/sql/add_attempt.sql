-- Keeps closed attempts, and forgets those before the newest hundred with their logs. $1 the attempts as JSON.
-- By attempt_pkey and log_pkey, as ranges (see complete).
with new as materialized (
    select * from json_populate_recordset(null::windlass.attempt, $1::text::json)
),
forgotten as (
    delete from windlass.attempt a using new n
    where n.version > 100 and a.seq >= n.seq and a.seq <= n.seq and a.version <= n.version - 100
),
unlogged as (
    delete from windlass.log a using new n
    where n.version > 100 and a.seq >= n.seq and a.seq <= n.seq and a.version <= n.version - 100
)
insert into windlass.attempt (seq, version, token, number, generation, outcome, started_at, ended_at, worker, failure)
select seq, version, token, number, generation, outcome, started_at, ended_at, worker, failure
from new where outcome <> 0
