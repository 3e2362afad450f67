-- Leaves behind that leases of controlled queues have ended. $1 their strands, $2 their lanes. By lane_pkey.
insert into windlass.note (queue, strands, counts)
select l.queue, array_agg(i.strand), array_agg(1)
from unnest($1::int[], $2::int[]) as i(strand, lane)
cross join lateral (select queue from windlass.lane where lane = i.lane offset 0) l
group by l.queue
