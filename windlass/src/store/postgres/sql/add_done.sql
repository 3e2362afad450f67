-- Puts rows into the table done. $1 the rows as JSON.
insert into windlass.done
    (seq, lane, state, completed_at, version, attempt, failures, lost, generation, scheduled_at, started_at, failed_at,
    token, worker, failure, reason, fingerprint, result_type, result, prune_at)
select
    seq, lane, state, completed_at, version, attempt, failures, lost, generation, scheduled_at, started_at, failed_at,
    token, worker, failure, reason, fingerprint, result_type, result, prune_at
from json_populate_recordset(null::windlass.done, $1::text::json)
