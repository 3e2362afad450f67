-- Expired leases, in the order in which they expired, but for those that somebody holds. $1 the time, $2 how many.
-- By leased_expiry.
select seq
from windlass.leased
where expires_at <= $1::bigint
order by expires_at, seq
limit $2::bigint
for update skip locked
