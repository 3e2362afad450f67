-- Jobs after a place, oldest first: enough to see whether they can match. $1 the place, $2 how many at most. By job_pkey.
select seq, lane, created_at
from windlass.job
where seq > $1::bigint
order by seq asc
limit $2::bigint
