-- Puts rows into the table ready. $1 the rows as JSON.
insert into windlass.ready
    (seq, lane, priority, state, slow, due, deadline, visibility, lease_max, kept, version, attempt, failures, lost, generation,
    scheduled_at, updated_at, started_at, failed_at, failure)
select
    seq, lane, priority, state, slow, due, deadline, visibility, lease_max, kept, version, attempt, failures, lost, generation,
    scheduled_at, updated_at, started_at, failed_at, failure
from json_populate_recordset(null::windlass.ready, $1::text::json)
