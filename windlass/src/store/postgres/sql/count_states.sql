-- The numbers of every lane, by queue and type, in one snapshot. $1 the time, null for the server's; $2 how many running and how
-- many waiting jobs are counted at most.
-- Adds up the events since they were last folded, and the running and the delayed jobs. By event_pkey, leased_pkey and
-- ready_later.
with clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
),
numbers as materialized (
    select e.lane, e.kind, sum(e.count)::bigint as count from windlass.event e group by e.lane, e.kind
    union all
    select l.lane, 3::smallint, count(*)
    from (select lane from windlass.leased order by seq limit $2::bigint) l
    group by l.lane
    union all
    select r.lane, r.state, count(*)
    from (
        select lane, state
        from windlass.ready
        where state <> 2 and due > (select now from clock)
        order by due
        limit $2::bigint
    ) r
    group by r.lane, r.state
)
select q.name, q.halted as paused, n.job_type, n.kind, n.count, (select now from clock) as now
from windlass.queue q
left join (
    select l.queue, l.job_type, n.kind, sum(n.count)::bigint as count
    from windlass.lane l
    left join numbers n on n.lane = l.lane
    group by l.queue, l.job_type, n.kind
) n on n.queue = q.queue
order by q.name collate "C", n.job_type collate "C"
