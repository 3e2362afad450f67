-- Adds up anew what runs in each type of a queue, from its strands. $1 queue, which is held. By strand_queue_key_lane_key.
insert into windlass.gate (queue, lane, running)
select $1::int, c.lane, sum(c.running)::int
from (
    select s.lane, s.running from windlass.strand s where s.queue = $1::int
    union all
    select g.lane, 0 from windlass.gate g where g.queue = $1::int
) c
where c.lane <> 0
group by c.lane
on conflict (queue, lane) do update set running = excluded.running
where gate.running <> excluded.running
