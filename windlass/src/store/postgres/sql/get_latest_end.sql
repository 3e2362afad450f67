-- The latest end of a lease that ends by a moment, as if those that were granted after the last beat had been granted then.
-- $1 the moment; $2 the last beat. By leased_expiry; reads all that have run out, after an absence alone.
select max(l.expires_at - greatest(l.started_at - $2::bigint, 0)) as latest
from windlass.leased l
where l.expires_at <= $1::bigint
