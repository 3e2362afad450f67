-- How many SCHEDULED jobs of a queue come before a place in claim order, counted up to a limit.
-- $1 the time; $2 queue; $3 priority, $4 position and $5 sequence of the place; $6 the limit. Of a controlled queue,
-- what waits on the first thousand strands. By ready_claim.
select count(*) as ahead
from (
    select 1
    from windlass.queue q
    cross join lateral (
        select a.lane from windlass.lane a where a.queue = q.queue
        union all
        (select s.strand from windlass.strand s where s.queue = q.queue limit 1000)
    ) l
    cross join generate_series(0, 4) as p(priority)
    cross join lateral (
        select 1
        from windlass.ready r
        where r.lane = l.lane and r.priority = p.priority and r.due <= $1::bigint
            and (p.priority < $3::smallint
                or (p.priority = $3::smallint and (r.due, r.seq + 0) < ($4::bigint, $5::bigint)))
        limit $6::bigint
    ) r
    where q.name = $2::text
    limit $6::bigint
) a
