-- Jobs with a tag or a correlation id after a place, oldest first. $1 the place, $2 how many at most, $3 the mark's name, $4 its
-- value. By mark_pkey and job_pkey.
with seen as materialized (
    select seq from windlass.mark
    where name = $3::text and value = $4::text and seq > $1::bigint
    order by seq
    limit $2::bigint
)
select s.seq, j.lane, j.created_at
from seen s
cross join lateral (select lane, created_at from windlass.job where seq = s.seq offset 0) j
order by s.seq
