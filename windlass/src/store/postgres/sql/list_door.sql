-- Due jobs at the door of a controlled queue, the most urgent first, or the oldest. $1 the time, null for the server's; $2 lanes;
-- $3 how many; $4 whether the oldest come first, as where keys are ordered. Options are given where they may name a key.
-- By ready_claim and job_pkey.
with clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
),
door as materialized (
    select f.seq, f.lane, f.priority, f.due
    from unnest($2::int[]) as w(lane)
    cross join generate_series(0, 4) as p(priority)
    cross join lateral (
        select r.seq, r.lane, r.priority, r.due
        from windlass.ready r
        where r.lane = w.lane and r.priority = p.priority and r.due <= (select now from clock)
            and (r.deadline is null or r.deadline > (select now from clock))
        order by r.due, r.seq + 0
        limit $3::int
    ) f
    order by case when $4::boolean then 0 else f.priority end, f.due, f.seq
    limit $3::int
)
select d.seq, d.lane, d.priority, d.due, j.options
from door d
cross join lateral (
    select case when options like '%"key"%' then options end as options from windlass.job where seq = d.seq offset 0
) j
