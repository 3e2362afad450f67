-- Jobs of a queue that can be claimed, in claim order. $1 the time; $2 queue; $3 priority, $4 position and $5 sequence after which; $6 how
-- many at most. Of a controlled queue, what waits on the first ten thousand strands. By ready_claim.
select r.seq, r.priority, r.due as at
from windlass.queue q
cross join lateral (
    select a.lane from windlass.lane a where a.queue = q.queue
    union all
    (select s.strand from windlass.strand s where s.queue = q.queue limit 10000)
) l
cross join generate_series(0, 4) as p(priority)
cross join lateral (
    select r.seq, r.priority, r.due
    from windlass.ready r
    where r.lane = l.lane and r.priority = p.priority and r.due <= $1::bigint
        and (r.deadline is null or r.deadline > $1::bigint)
        and (p.priority > $3::smallint or (r.due, r.seq + 0) > ($4::bigint, $5::bigint))
    order by r.due, r.seq + 0
    limit $6::bigint
) r
where q.name = $2::text and p.priority >= $3::smallint
order by r.priority, r.due, r.seq
limit $6::bigint
