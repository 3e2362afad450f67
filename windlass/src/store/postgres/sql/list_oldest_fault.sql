-- Dead jobs of a fault after a place, oldest first. $1 the place, $2 how many at most, $3 fingerprint.
-- By done_fault, as a range, so that no plan walks over all that ended, and job_pkey.
with seen as materialized (
    select seq from windlass.done
    where fingerprint >= $3::bigint and fingerprint <= $3::bigint and fingerprint is not null and seq > $1::bigint
    order by fingerprint asc, seq asc
    limit $2::bigint
)
select s.seq, j.lane, j.created_at
from seen s
cross join lateral (select lane, created_at from windlass.job where seq = s.seq offset 0) j
order by s.seq asc
