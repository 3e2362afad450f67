-- The newest jobs that ended in a state. ?1 state, ?2 how many at most. Indexes windlass_done_ended and windlass_done_ended_own.
select lane, state, scheduled_at, started_at, at
from (
    select lane, state, scheduled_at, started_at, updated_at as at, ended
    from windlass_done
    where state = ?1 and prune_at is null
    order by ended desc
    limit ?2
)
union all
select lane, state, scheduled_at, started_at, at
from (
    select lane, state, scheduled_at, started_at, updated_at as at, ended
    from windlass_done
    where state = ?1 and prune_at is not null
    order by ended desc
    limit ?2
)
order by at desc;
