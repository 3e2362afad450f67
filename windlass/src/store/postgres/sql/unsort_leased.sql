-- Lets the leases of a queue count on no strand, but for those that another transaction holds. $1 queue.
-- Reads the whole of leased: for queues that are no longer controlled. By leased_pkey.
update windlass.leased
set strand = null
where seq = any(array(
    select l.seq from windlass.leased l
    where l.lane = any(array(select a.lane from windlass.lane a where a.queue = $1::int)) and l.strand is not null
    for update skip locked))
