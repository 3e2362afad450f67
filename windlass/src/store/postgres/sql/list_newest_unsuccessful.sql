-- Jobs that ended in states other than COMPLETED before a place, newest first. $1 the place, $2 how many at most, $3 the
-- states, $4 whether the time of submission is asked for. By done_dead, as a range, so that no plan walks over all that ended, and job_pkey.
with seen as materialized (
    select d.seq, d.lane
    from unnest($3::smallint[]) as w(state)
    cross join lateral (
        select seq, lane from windlass.done
        where state >= w.state and state <= w.state and state <> 5 and seq < $1::bigint
        order by state desc, seq desc
        limit $2::bigint
    ) d
    order by d.seq desc
    limit $2::bigint
)
select s.seq, s.lane,
    case when $4::boolean then (select j.created_at from windlass.job j where j.seq >= s.seq and j.seq <= s.seq) else 0 end as created_at
from seen s
order by s.seq desc
