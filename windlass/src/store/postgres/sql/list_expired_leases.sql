-- Expired leases, in the order in which they expired, but for those that another transaction holds. $1 the time, $2 how many,
-- $3 the moment before which none can be. By leased_expiry.
select seq
from windlass.leased
where expires_at <= $1::bigint and expires_at >= $3::bigint
order by expires_at, seq
limit $2::bigint
for update skip locked
