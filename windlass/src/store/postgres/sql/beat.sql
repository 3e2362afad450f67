-- Beats (see Pulse): notes the time, unless that was done just now, or is being done, which gives no row. Gives false where the
-- last beat is so long ago that the store was away, or there was none: then put_pulse is called for.
-- The time is read once the row is held: a beat before may have waited for the standby. Of the correction of the server's clock a
-- part of the time that passed is taken back.
-- $1 the time, null for the server's; $2 how close together beats may be; $3 after how long the store counts as
-- away. By pulse_pkey.
with held as materialized (
    select p.at, p.skew
    from windlass.pulse p
    where p.only_row
        and p.at <= coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint + p.skew) - $2::bigint
    for update skip locked
),
read as materialized (
    select h.*, (extract(epoch from clock_timestamp()) * 1000000)::bigint as raw from held h
),
kept as materialized (
    select r.at, r.raw, windlass.remaining_skew(r.skew, r.at, r.raw) as skew from read r
),
clock as materialized (
    select k.at, k.skew, coalesce($1::bigint, k.raw + k.skew) as now from kept k
),
beaten as (
    update windlass.pulse p
    set at = c.now, skew = c.skew, server = (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint
    from clock c
    where p.only_row and c.at >= c.now - $3::bigint
    returning p.at
)
select exists (select from beaten) as beaten from clock
