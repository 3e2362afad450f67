-- The unfinished jobs that a job waits for. $1 sequence, $2 how many at most; $3 whether it waits for one of its
-- AFTER_ANY dependencies, of which one is enough. By edge_pkey and job_pkey.
select distinct j.id
from windlass.edge e
cross join lateral (select id from windlass.job where seq = e.parent offset 0) j
where e.child = $1::bigint and e.open and (e.kind <> 1 or $3::boolean)
limit $2::bigint
