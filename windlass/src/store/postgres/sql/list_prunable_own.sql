-- Ended jobs with a retention of their own that is over, and that no unfinished job depends on. $1 the time, $2 how many,
-- $3 the moment before which there can be none. By done_prune, edge_parent and done_pkey.
select d.seq, d.lane, d.state, d.prune_at
from windlass.done d
where d.prune_at <= $1::bigint and d.prune_at >= $3::bigint
    and not exists (
        select from windlass.edge e
        where e.parent = d.seq and not exists (select from windlass.done c where c.seq = e.child offset 0) offset 0)
order by d.prune_at
limit $2::bigint
