-- The leases on jobs, to say why one does not hold. $1 the time, null for the server's; $2 sequences; $3 ids.
-- By leased_pkey and job_pkey.
select j.id, l.seq, l.token, l.expires_at, l.deadline,
    coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
from windlass.leased l
cross join lateral (select id from windlass.job where seq = l.seq offset 0) j
where l.seq = any($2::bigint[]) and j.id = any($3::uuid[])
