-- Options of due jobs at the door of a controlled queue that may name a key. $1 the time, null for the server's; $2 queue; $3 how
-- many jobs are looked at. By ready_claim and job_pkey.
with clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
),
door as materialized (
    select f.seq
    from windlass.lane a
    cross join generate_series(0, 4) as p(priority)
    cross join lateral (
        select r.seq
        from windlass.ready r
        where r.lane = a.lane and r.priority = p.priority and r.due <= (select now from clock)
        order by r.due, r.seq + 0
        limit $3::bigint
    ) f
    where a.queue = $2::int
    limit $3::bigint
)
select j.options, (select now from clock) as now
from door d
cross join lateral (select options from windlass.job where seq = d.seq and options like '%"key"%' offset 0) j
