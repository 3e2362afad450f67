-- Counts the RUNNING jobs of a queue as those of a plain one again. ?1 queue. Reads all leases: only when the control of a queue
-- ends or comes to tell keys apart.
update windlass_leased
set
    lane = (
        select d.lane
        from windlass_lane as s join windlass_lane as d on d.queue = s.queue and d.key = '' and d.type = s.type
        where s.lane = windlass_leased.lane
    ),
    flags = flags & ~4
where lane in (select lane from windlass_lane where queue = ?1 and key > '');
