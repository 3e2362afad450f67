-- Jobs that ended in a state after a tick. ?1 tick, ?2 how many at most, ?3 state.
-- Indexes windlass_done_ended and windlass_done_ended_own.
select done.tick, windlass_job.id, done.lane, done.at, done.state, windlass_job.options
from (
    select ended as tick, seq, lane, updated_at as at, state
    from (
        select ended, seq, lane, updated_at, state
        from windlass_done
        where state = ?3 and ended > ?1 and prune_at is null
        order by ended
        limit ?2
    )
    union all
    select ended as tick, seq, lane, updated_at as at, state
    from (
        select ended, seq, lane, updated_at, state
        from windlass_done
        where state = ?3 and ended > ?1 and prune_at is not null
        order by ended
        limit ?2
    )
) as done
join windlass_job on windlass_job.seq = done.seq
order by done.tick
limit ?2;
