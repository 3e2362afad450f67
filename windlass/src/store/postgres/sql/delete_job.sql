-- Removes ended jobs and everything of theirs; their workflows count them, and go with the last of their jobs.
-- $1 sequences. By the primary keys, edge_parent and job_workflow; `offset 0` keeps PostgreSQL 18 from reading all jobs once
-- in place of those of a workflow.
with gone as (delete from windlass.job where seq = any($1::bigint[]) returning seq, workflow),
d as (delete from windlass.done where seq = any($1::bigint[])),
c as (delete from windlass.edge where child = any($1::bigint[])),
p as (
    delete from windlass.edge
    where ctid = any(array(
        select e.ctid
        from unnest($1::bigint[]) as i(seq)
        cross join lateral (select ctid from windlass.edge where parent = i.seq and child <> all($1::bigint[]) offset 0) e))
),
a as (delete from windlass.attempt where seq = any($1::bigint[])),
l as (delete from windlass.log where seq = any($1::bigint[])),
counted as (select workflow, count(*) as jobs from gone where workflow is not null group by workflow),
left_over as materialized (
    select c.workflow, c.jobs, exists (
        select from windlass.job j where j.workflow = c.workflow and j.seq <> all($1::bigint[]) offset 0) as others
    from counted c
),
w as (
    update windlass.workflow w set pruned = w.pruned + l.jobs
    from left_over l where w.workflow = l.workflow and l.others
)
delete from windlass.workflow w using left_over l where w.workflow = l.workflow and not l.others
