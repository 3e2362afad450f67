-- The newest jobs that ended, by state; those with a retention of their own apart. $1 from this moment on, $2 how many of each
-- state at most. By done_end and done_end_own.
select d.lane, d.state, d.scheduled_at, d.started_at, d.completed_at as at
from generate_series(5, 8) as s(state)
cross join lateral (
    (
        select lane, state, scheduled_at, started_at, completed_at
        from windlass.done
        where state = s.state::smallint and completed_at >= $1::bigint and prune_at is null
        order by completed_at desc
        limit $2::bigint
    )
    union all
    (
        select lane, state, scheduled_at, started_at, completed_at
        from windlass.done
        where state = s.state::smallint and completed_at >= $1::bigint and prune_at is not null
        order by completed_at desc
        limit $2::bigint
    )
) d
