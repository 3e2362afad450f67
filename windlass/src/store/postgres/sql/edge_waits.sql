-- The unfinished jobs that a job waits for. $1 sequence, $2 how many at most. By edge_pkey and job_pkey.
select distinct j.id
from windlass.edge e
join windlass.job j on j.seq = e.parent
where e.child = $1::bigint and e.open
limit $2::bigint
