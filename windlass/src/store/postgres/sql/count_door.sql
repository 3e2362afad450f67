-- How many due jobs stand at the doors of controlled queues, each counted up to a limit. $1 the time, null for the server's;
-- $2 queues; $3 the limit. By ready_claim.
select q.queue, d.jobs
from unnest($2::int[]) as q(queue)
cross join lateral (
    select count(*) as jobs
    from (
        select from windlass.lane a
        cross join generate_series(0, 4) as p(priority)
        cross join lateral (
            select from windlass.ready r
            where r.lane = a.lane and r.priority = p.priority
                and r.due <= coalesce($1::bigint, (extract(epoch from now()) * 1000000)::bigint)
            limit $3::bigint
        ) r
        where a.queue = q.queue
        limit $3::bigint
    ) c
) d
