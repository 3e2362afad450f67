-- Puts rows into the table leased. $1 the rows as JSON.
insert into windlass.leased
    (seq, lane, priority, slow, token, version, expires_at, deadline, visibility, lease_max, kept, attempt, failures, lost, generation,
    scheduled_at, started_at, failed_at, failure, worker, cancel, strand)
select
    seq, lane, priority, slow, token, version, expires_at, deadline, visibility, lease_max, kept, attempt, failures, lost, generation,
    scheduled_at, started_at, failed_at, failure, worker, cancel, strand
from json_populate_recordset(null::windlass.leased, $1::text::json)
