-- After a server's clock was ahead: leases that it granted begin now. $1 the time. By leased_expiry.
update windlass.leased l
set started_at = $1::bigint, expires_at = $1::bigint + (l.expires_at - l.started_at)
where l.expires_at > $1::bigint + 1000000 and l.started_at > $1::bigint + 1000000
