-- Workers that live, by id, as many as fit into an answer. $1 the time, null for the server's; $2 how long a worker lives
-- after its last report; $3 how many bytes fit.
select v.report, v.started_at, v.seen_at, v.draining
from (
    select w.id, w.report, w.started_at, w.seen_at, w.draining,
        sum(octet_length(w.report)) over (order by w.id collate "C") as bytes
    from windlass.worker w
    where w.seen_at >= coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) - $2::bigint
) v
where v.bytes <= $3::bigint
