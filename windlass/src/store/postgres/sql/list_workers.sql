-- Workers that live. $1 the time, null for the server's; $2 how long a worker lives after its last report.
select w.report, w.started_at, w.seen_at
from windlass.worker w
where w.seen_at >= coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) - $2::bigint
