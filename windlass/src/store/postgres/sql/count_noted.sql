-- How many leases of each lane of a queue have ended without a claim having taken that in. $1 queue. By note_pkey and strand_pkey.
select s.lane, sum(u.count)::bigint as count
from windlass.note n
cross join lateral unnest(n.strands, n.counts) as u(strand, count)
cross join lateral (select lane from windlass.strand where strand = u.strand offset 0) s
where n.queue = $1::int
group by s.lane
