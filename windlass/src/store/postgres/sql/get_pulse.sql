-- The pulse, whether it is of this server, and the time by its skew. $1 the time, null for the server's. By pulse_pkey.
select
    p.at, p.away_from, p.grace_until, p.skew,
    p.server = (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint as same_server,
    coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint + p.skew) as now
from windlass.pulse p
where p.only_row
