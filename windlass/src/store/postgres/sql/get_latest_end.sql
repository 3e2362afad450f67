-- The latest end of a lease that ends by a moment. $1 the moment. By leased_expiry.
select (select l.expires_at from windlass.leased l where l.expires_at <= $1::bigint order by l.expires_at desc limit 1) as latest
