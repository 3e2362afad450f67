-- Jobs that ended in states other than COMPLETED before a place, newest first. $1 the place, $2 how many at most, $3 the
-- states. By done_dead, as a range, so that no plan walks over all that ended, and job_pkey.
with seen as materialized (
    select d.seq
    from unnest($3::smallint[]) as w(state)
    cross join lateral (
        select seq from windlass.done
        where state >= w.state and state <= w.state and state <> 5 and seq < $1::bigint
        order by state desc, seq desc
        limit $2::bigint
    ) d
    order by d.seq desc
    limit $2::bigint
)
select s.seq, j.lane, j.created_at
from seen s
cross join lateral (select lane, created_at from windlass.job where seq = s.seq offset 0) j
order by s.seq desc
