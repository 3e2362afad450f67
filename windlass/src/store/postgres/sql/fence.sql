-- The leases on jobs, to say why one does not hold. $1 the time, null for the server's; $2 jobs. By leased_pkey.
select l.id, l.token, l.expires_at,
    coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
from windlass.leased l
where l.id = any($2::uuid[])
