-- Jobs with their state, and the time. $1 the time, null for the server's; $2 sequences; $3 ids.
-- By job_pkey and the keys of the narrow tables.
select r.*, coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
from windlass.record r where seq = any($2::bigint[]) and id = any($3::uuid[])
