-- The pulse, whether it is of this server, what is left of its skew, and the time by that. $1 the time,
-- null for the server's. By pulse_pkey.
with read as materialized (
    select p.*, (extract(epoch from clock_timestamp()) * 1000000)::bigint as raw from windlass.pulse p where p.only_row
),
kept as materialized (
    select r.*, windlass.remaining_skew(r.skew, r.at, r.raw) as remaining
    from read r
)
select
    k.at, k.away_from, k.grace_until, k.remaining as skew,
    k.server = (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint as same_server,
    coalesce($1::bigint, k.raw + k.remaining) as now
from kept k
