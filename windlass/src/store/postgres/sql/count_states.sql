-- The numbers of every lane, by queue and type, in one snapshot. $1 the time, null for the server's; $2 how many running and how
-- many waiting jobs are counted at most.
-- Adds up the events since they were last folded, and the running and the delayed jobs. Each number finds its lane and each lane its
-- queue by key; every lane and every queue has a row without a number. By event_pkey, leased_pkey, ready_later, lane_pkey and queue_pkey.
with clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
),
numbers as materialized (
    -- All of them; named as a range, they are found by their key, past the pages that folding has left empty.
    select e.lane, e.kind, sum(e.count)::bigint as count from windlass.event e where e.event >= 0 group by e.lane, e.kind
    union all
    select l.lane, 3::smallint, count(*)
    from (select lane from windlass.leased order by seq limit $2::bigint) l
    group by l.lane
    union all
    select r.lane, r.state, r.count from clock c cross join lateral windlass.count_later(c.now, $2::bigint) r
),
named as materialized (
    select l.queue, l.job_type, n.kind, sum(n.count)::bigint as count
    from numbers n
    cross join lateral (select queue, job_type from windlass.lane where lane = n.lane offset 0) l
    group by l.queue, l.job_type, n.kind
    union all
    select l.queue, l.job_type, null, null from windlass.lane l
)
select c.name, c.paused, c.job_type, c.kind, c.count, (select now from clock) as now
from (
    select q.name, q.halted as paused, n.job_type, n.kind, n.count
    from named n
    cross join lateral (select name, halted from windlass.queue where queue = n.queue offset 0) q
    union all
    select q.name, q.halted, null, null, null from windlass.queue q
) c
order by c.name collate "C", c.job_type collate "C"
