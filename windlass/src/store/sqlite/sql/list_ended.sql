-- Jobs that ended in a state before a tick, the last first. ?1 state, ?2 tick, ?3 how many at most.
-- Indexes windlass_done_ended and windlass_done_ended_own.
select place, seq, lane
from (
    select ended as place, seq, lane
    from windlass_done
    where state = ?1 and ended < ?2 and prune_at is null
    order by ended desc
    limit ?3
)
union all
select place, seq, lane
from (
    select ended as place, seq, lane
    from windlass_done
    where state = ?1 and ended < ?2 and prune_at is not null
    order by ended desc
    limit ?3
)
order by place desc
limit ?3;
