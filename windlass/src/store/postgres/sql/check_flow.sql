-- What contradicts itself in controlled queues. $1 the time, null for the server's.
with clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
),
counted as materialized (
    select c.strand, sum(c.told)::bigint as told, sum(c.count)::bigint as count
    from (
        select s.strand, s.running as told, 0 as count from windlass.strand s
        union all
        select l.strand, 0, 1 from windlass.leased l where l.strand is not null
        union all
        select u.strand, 0, u.count
        from windlass.note n
        cross join lateral unnest(n.strands, n.counts) as u(strand, count)
    ) c
    group by c.strand
),
summed as materialized (
    select c.queue, c.lane, sum(c.told)::bigint as told, sum(c.count)::bigint as count
    from (
        select g.queue, g.lane, g.running as told, 0 as count from windlass.gate g where g.lane <> 0
        union all
        select s.queue, s.lane, 0, s.running
        from windlass.strand s
        where s.lane <> 0 and exists (select from windlass.queue q where q.queue = s.queue and q.control is not null)
    ) c
    group by c.queue, c.lane
)
select 'strand ' || s.strand || ' of key "' || s.key || '" in queue ' || q.name || ' counts ' || c.told || ' running jobs, but '
    || c.count || ' are' as problem
from counted c
cross join lateral (select * from windlass.strand where strand = c.strand offset 0) s
cross join lateral (select name from windlass.queue where queue = s.queue and control is not null offset 0) q
where c.told <> c.count
union all
select 'the gate of lane ' || s.lane || ' counts ' || s.told || ' running jobs, but its strands ' || s.count
from summed s
where s.told <> s.count
union all
select 'job number ' || r.seq || ' waits on a strand that '
    || case when s.strand is null then 'does not exist' else 'is said to be empty' end
from windlass.ready r
left join lateral (select strand, look from windlass.strand where strand = r.lane offset 0) s on true
where r.lane < 0
    and (s.strand is null
        or s.look = 4000000000000000001 and (r.deadline is null or r.deadline > (select now from clock)))
union all
select 'the lease of job number ' || l.seq || ' counts on a strand that is not of its queue and type'
from windlass.leased l
where l.strand is not null
    and not exists (select from windlass.strand s where s.strand = l.strand and s.lane = l.lane)
limit 100
