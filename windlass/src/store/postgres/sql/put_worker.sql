-- Notes that a worker lives; gives whether it is to take no more jobs. $1 the time, null for the server's; $2 worker; $3 its report as
-- JSON; $4 whether it takes its leave. By worker_pkey.
insert into windlass.worker as w (id, started_at, seen_at, report)
select $2::text, t.now, t.now, $3::text
from (select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now) t
on conflict (id) do update set seen_at = excluded.seen_at, report = excluded.report, draining = w.draining and not $4::bool
returning w.draining
