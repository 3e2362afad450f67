-- Takes runnable jobs out of one lane (rule L1): locks the first that no other transaction holds, priority by priority, and moves
-- their rows from ready to leased. It stops at the last row it wants, so that nothing else is touched.
-- $1 the time, null for the server's; $2 worker; $3 lease time, null for each job's visibility timeout; $4 lane;
-- $5 how many; $6 for each priority the moment before which nothing can be due; $7 the part that the tokens have in
-- common; $8 and $9 between which the time must be: by a clock that leapt nothing is taken.
-- By ready_claim, then by place in the table; job_pkey.
with clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
),
taken as (
    delete from windlass.ready
    where ctid = any(array(
        select f.spot
        from generate_series(0, 4) as p(priority)
        cross join lateral (
            select r.ctid as spot
            from windlass.ready r
            where r.lane = $4::int
                and r.priority = p.priority
                and r.due >= ($6::bigint[])[p.priority + 1]
                and r.due <= (select now from clock)
                and (r.deadline is null or r.deadline > (select now from clock))
                and (select now from clock) between $8::bigint and $9::bigint
                and not (
                    select q.paused from windlass.lane l join windlass.queue q using (queue) where l.lane = $4::int)
            order by r.due, r.seq + 0
            limit $5::int
            for update of r skip locked
        ) f
        limit $5::int))
    returning
        seq, lane, priority, slow, due, deadline, visibility, lease_max, kept, version + 1 as version,
        attempt + 1 as attempt, failures, lost, generation, failed_at, failure,
        least(
            (select now from clock) + least(coalesce($3::bigint, visibility), coalesce(lease_max, 1810000000)),
            deadline) as expires_at
),
held as (
    insert into windlass.leased
        (seq, lane, priority, slow, token, version, expires_at, deadline, visibility, lease_max, kept, attempt, failures, lost,
        generation, scheduled_at, started_at, failed_at, failure, worker)
    select
        t.seq, t.lane, t.priority, t.slow, $7::uuid, t.version, t.expires_at, t.deadline, t.visibility,
        t.lease_max, t.kept, t.attempt, t.failures, t.lost, t.generation, t.due, (select now from clock), t.failed_at, t.failure, $2::text
    from taken t
)
select
    t.seq, j.id, t.lane, t.version, t.expires_at, t.attempt, t.failures, t.lost, t.generation,
    t.due as scheduled_at, (select now from clock) as started_at, t.failed_at, t.failure, j.priority, j.inherited,
    j.created_at, j.deadline, j.content_type, j.payload, j.options, j.depends_on, j.workflow, j.schedule, j.slot,
    j.spawned_by, j.progress, j.checkpoint, t.priority as claimed_priority
from taken t
cross join lateral (select * from windlass.job where seq = t.seq offset 0) j
