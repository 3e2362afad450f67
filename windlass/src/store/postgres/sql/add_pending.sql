-- Puts rows into the table pending. $1 the rows as JSON.
insert into windlass.pending
    (seq, lane, slow, waits_all, waits_any, run_at, deadline, version, attempt, failures, lost, generation, scheduled_at,
    updated_at, started_at, failed_at, failure)
select
    seq, lane, slow, waits_all, waits_any, run_at, deadline, version, attempt, failures, lost, generation, scheduled_at,
    updated_at, started_at, failed_at, failure
from json_populate_recordset(null::windlass.pending, $1::text::json)
