-- Ended jobs that the store's own retention kept long enough and that no unfinished job depends on. $1 states, $2 until when each is pruned,
-- $3 how many, $4 the moments before which nothing can be, by state from 5. By done_end, edge_parent and done_pkey.
select d.seq, d.lane, d.state, d.completed_at
from unnest($1::smallint[], $2::bigint[]) with ordinality as k(state, until, place)
cross join lateral (
    select d.seq, d.lane, d.state, d.completed_at
    from windlass.done d
    where d.state = k.state and d.prune_at is null and d.completed_at <= k.until and d.completed_at >= ($4::bigint[])[k.state - 4]
        and not exists (
            select from windlass.edge e
            where e.parent = d.seq and not exists (select from windlass.done c where c.seq = e.child offset 0) offset 0)
    order by d.completed_at
    limit $3::bigint
) d
order by k.place
limit $3::bigint
