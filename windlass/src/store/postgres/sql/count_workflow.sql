-- How many jobs of workflows are in each state. $1 the time, null for the server's; $2 ids.
-- By job_workflow, then job_pkey and the keys of the narrow tables.
with clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
),
part as materialized (
    select j.workflow, j.seq
    from unnest($2::uuid[]) as w(workflow)
    cross join lateral (select workflow, seq from windlass.job where workflow = w.workflow offset 0) j
)
select p.workflow, case when r.state in (1, 4) and r.due <= c.now then 2::smallint else r.state end as state, count(*) as count
from clock c, part p
cross join lateral (select state, due from windlass.record where seq = p.seq offset 0) r
group by 1, 2
