-- Counts anew what runs on the strands of a queue: its leases, and those whose ends were noted and not taken in. In one
-- statement, so that both are seen at one moment. Gives the strands that were wrong. $1 queue, which is held.
-- Reads the whole of leased and of the queue's strands.
with counted as materialized (
    select c.strand, sum(c.count)::int as running
    from (
        select s.strand, 0 as count from windlass.strand s where s.queue = $1::int
        union all
        select l.strand, 1 from windlass.leased l where l.strand is not null
        union all
        select u.strand, u.count
        from windlass.note n
        cross join lateral unnest(n.strands, n.counts) as u(strand, count)
        where n.queue = $1::int
    ) c
    group by c.strand
)
update windlass.strand s
set running = c.running, look = case when s.look in (0, 2) then 2 else 1 end
from counted c
where s.strand >= c.strand and s.strand <= c.strand and s.queue = $1::int and s.running <> c.running
returning s.strand
