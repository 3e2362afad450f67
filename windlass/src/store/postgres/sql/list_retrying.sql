-- The waiting jobs that are due soonest, with the failure of those that are tried again. $1 the time, null for the server's; $2 how many at
-- most. A strand is no lane: a job there says its own. By ready_later and job_pkey.
with clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
),
waiting as materialized (
    select r.seq, r.lane, r.state, r.failed_at, r.failure
    from windlass.ready r
    where r.state <> 2 and r.due > (select now from clock)
    order by r.due
    limit $2::bigint
)
select w.seq, w.failed_at, w.failure, (select now from clock) as now, (select count(*) from waiting) as looked,
    case when w.lane > 0 then w.lane else (select j.lane from windlass.job j where j.seq >= w.seq and j.seq <= w.seq) end as lane
from waiting w
where w.state = 4
