-- The pulse, which no other transaction changes until this one ends, and the time by its skew after it was held.
-- $1 the time, null for the server's. By pulse_pkey.
with held as materialized (
    select at, away_from, grace_until, skew, server from windlass.pulse where only_row for update
)
select
    h.at, h.away_from, h.grace_until, h.skew,
    h.server = (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint as same_server,
    coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint + h.skew) as now
from held h
