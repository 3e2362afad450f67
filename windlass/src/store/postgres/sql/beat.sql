-- Beats (see Pulse): notes the time, unless that was done just now, or so long ago that the store was away; then put_pulse is
-- called for. Gives the pulse as it was, and the time.
-- $1 the time, null for the server's; $2 how close together beats may be; $3 after how long the store counts as away.
-- By pulse_pkey.
with clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
),
beaten as (
    update windlass.pulse
    set at = (select now from clock)
    where only_row
        and at <= (select now from clock) - $2::bigint and at >= (select now from clock) - $3::bigint
)
select p.at, p.away_from, p.grace_until, (select now from clock) as now
from windlass.pulse p
where p.only_row
