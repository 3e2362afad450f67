-- The pulse, which no other transaction changes until this one ends, what is left of its skew, and the time
-- by that after it was held. $1 the time, null for the server's. By pulse_pkey.
with held as materialized (
    select at, away_from, grace_until, skew, server from windlass.pulse where only_row for update
),
read as materialized (
    select h.*, (extract(epoch from clock_timestamp()) * 1000000)::bigint as raw from held h
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
