-- Removes ended jobs and everything of theirs; their workflows count them, and go with the last of their jobs.
-- $1 the first and $2 the last sequence of each run of neighbours, all of which are removed: a look-up for each run in place of one for
-- each job, in tables of which most hold nothing of these jobs.
-- By the primary keys, edge_parent and job_workflow, as ranges: see complete.sql; `offset 0` keeps PostgreSQL 18 from reading
-- all jobs once in place of those of a workflow.
with gone as (
    delete from windlass.job j using unnest($1::bigint[], $2::bigint[]) as r(low, high)
    where j.seq >= r.low and j.seq <= r.high
    returning j.seq, j.workflow
),
d as (
    delete from windlass.done d using unnest($1::bigint[], $2::bigint[]) as r(low, high)
    where d.seq >= r.low and d.seq <= r.high
),
c as (
    delete from windlass.edge e using unnest($1::bigint[], $2::bigint[]) as r(low, high)
    where e.child >= r.low and e.child <= r.high
),
p as (
    delete from windlass.edge
    where ctid = any(array(
        select e.ctid
        from unnest($1::bigint[], $2::bigint[]) as r(low, high)
        cross join lateral (
            select ctid from windlass.edge
            where parent >= r.low and parent <= r.high
                and not exists (
                    select from unnest($1::bigint[], $2::bigint[]) as o(low, high) where child >= o.low and child <= o.high)
            offset 0) e))
),
a as (
    delete from windlass.attempt a using unnest($1::bigint[], $2::bigint[]) as r(low, high)
    where a.seq >= r.low and a.seq <= r.high
),
l as (
    delete from windlass.log l using unnest($1::bigint[], $2::bigint[]) as r(low, high)
    where l.seq >= r.low and l.seq <= r.high
),
counted as (select workflow, count(*) as jobs from gone where workflow is not null group by workflow),
left_over as materialized (
    select c.workflow, c.jobs, exists (
        select from windlass.job j
        where j.workflow = c.workflow
            and not exists (
                select from unnest($1::bigint[], $2::bigint[]) as o(low, high) where j.seq >= o.low and j.seq <= o.high)
        offset 0) as others
    from counted c
),
w as (
    update windlass.workflow w set pruned = w.pruned + l.jobs
    from left_over l where w.workflow = l.workflow and l.others
)
delete from windlass.workflow w using left_over l where w.workflow = l.workflow and not l.others
