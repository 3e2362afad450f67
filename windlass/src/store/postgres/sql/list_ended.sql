-- Jobs that ended in a state before a place, the last first. $1 state, $2 and $3 the place (end, sequence), $4 how many at most.
-- By done_end and done_end_own.
select e.seq, e.completed_at as at, e.lane, $1::smallint as state
from (
    (
        select seq, completed_at, lane
        from windlass.done
        where state = $1::smallint and prune_at is null
            and completed_at <= $2::bigint and (completed_at < $2::bigint or seq < $3::bigint)
        order by completed_at desc, seq desc
        limit $4::bigint
    )
    union all
    (
        select seq, completed_at, lane
        from windlass.done
        where state = $1::smallint and prune_at is not null
            and completed_at <= $2::bigint and (completed_at < $2::bigint or seq < $3::bigint)
        order by completed_at desc, seq desc
        limit $4::bigint
    )
) e
order by e.completed_at desc, e.seq desc
limit $4::bigint
