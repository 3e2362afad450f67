-- Since when the longest-waiting SCHEDULED job of each queue waits. $1 the time, null for the server's. Of a controlled
-- queue, what waits on the first thousand strands. By ready_claim.
select q.name, min(r.due) as due
from windlass.queue q
cross join lateral (
    select a.lane from windlass.lane a where a.queue = q.queue
    union all
    (select s.strand from windlass.strand s where s.queue = q.queue limit 1000)
) l
cross join generate_series(0, 4) as p(priority)
cross join lateral (
    select r.due
    from windlass.ready r
    where r.lane = l.lane and r.priority = p.priority
        and r.due <= coalesce($1::bigint, (extract(epoch from now()) * 1000000)::bigint)
    order by r.due, r.seq + 0
    limit 1
) r
group by q.name
