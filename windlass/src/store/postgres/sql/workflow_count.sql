-- How many jobs of workflows are in each state. $1 the time, null for the server's; $2 ids. By job_workflow.
select r.workflow, case when r.state in (1, 4) and r.due <= t.now then 2::smallint else r.state end as state, count(*)
from windlass.record r,
    (select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now) t
where r.workflow = any($2::uuid[])
group by 1, 2
