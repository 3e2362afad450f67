-- The numbers of every queue, by name, in one snapshot. $1 the time, null for the server's.
-- Adds up the events since they were last folded, and the running and the delayed jobs. By event_pkey, leased_pkey and
-- ready_later.
with clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
),
numbers as (
    select e.lane, e.kind, sum(e.count)::bigint as count from windlass.event e group by e.lane, e.kind
    union all
    select l.lane, 3::smallint, count(*) from windlass.leased l group by l.lane
    union all
    select r.lane, r.state, count(*)
    from windlass.ready r
    where r.state <> 2 and r.due > (select now from clock)
    group by r.lane, r.state
)
select q.name, q.paused, n.kind, n.count
from windlass.queue q
left join (
    select l.queue, n.kind, sum(n.count)::bigint as count
    from numbers n
    join windlass.lane l on l.lane = n.lane
    group by l.queue, n.kind
) n on n.queue = q.queue
order by q.name collate "C"
