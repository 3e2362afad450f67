-- Heartbeats (rule L5): only leases that hold, never shorter, never beyond the lifetime, nor beyond the execution
-- timeout and its notice (T1b).
-- $1 the time, null for the server's; $2 lease time, null for each job's visibility timeout; $3 sequences, sorted;
-- $4 tokens; $5 the moment that leases are compared with, null for the time; $6 the latest that the time may be: by a clock
-- that leapt ahead nothing is extended.
-- By leased_pkey, as a range: by equality a plan may walk through the whole index, which looks as good while few leases are
-- held. The sum keeps the index of expiries out of it for the same reason.
with clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
)
update windlass.leased l
set expires_at = greatest(
    l.expires_at,
    least(
        (select now from clock) + coalesce($2::bigint, l.visibility), l.deadline,
        l.started_at + coalesce(l.lease_max, 1810000000)))
from unnest($3::bigint[], $4::uuid[]) as i(seq, token)
where l.seq >= i.seq and l.seq <= i.seq and l.token = i.token
    and l.expires_at + 0 > coalesce($5::bigint, (select now from clock))
    and (l.deadline is null or l.deadline > (select now from clock))
    and (select now from clock) <= $6::bigint
returning l.seq, l.token, l.expires_at - (select now from clock) as expires_in, l.cancel, (select now from clock) as now
