-- Running jobs after a place, oldest first. $1 the place, $2 how many at most. By leased_pkey and job_pkey.
with seen as materialized (
    select seq from windlass.leased where seq > $1::bigint order by seq asc limit $2::bigint
)
select s.seq, j.lane, j.created_at
from seen s
cross join lateral (select lane, created_at from windlass.job where seq = s.seq offset 0) j
order by s.seq asc
