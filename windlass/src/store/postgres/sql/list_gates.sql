-- The gates of a controlled queue, the next moment that opens a strand, and the time. $1 the time, null for the server's; $2 queue.
-- By gate_pkey and strand_later.
with clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
)
select g.lane, g.running, g.tat, g.held_until, g.turn, g.swept_at, (select now from clock) as now, (
    select min(s.look) from windlass.strand s
    where s.queue = $2::int and s.look > 0 and s.look > (select now from clock) and s.look < 4000000000000000000) as next
from windlass.gate g
where g.queue = $2::int
