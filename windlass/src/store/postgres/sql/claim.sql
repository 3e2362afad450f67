-- Takes runnable jobs out of several lanes (rule L1): looks at the first of each lane and priority, locks as many of
-- them in claim order as are wanted and no other claim holds, and moves their rows from ready to leased.
-- $1 the time, null for the server's; $2 worker; $3 lease time, null for each job's visibility timeout;
-- $4 lanes; $5 the place of each lane's queue in the call; $6 the places, each once; $7 how many of each place;
-- $8 how many in all; $9 how many more to look at than are wanted, because others may hold some; $10 the part
-- that the tokens have in common; $11 for each lane and priority the moment before which nothing can be due;
-- $12 and $13 between which the time must be: by a clock that leapt nothing is taken.
-- By ready_claim, then by place in the table; job_pkey.
with clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
),
peek as materialized (
    select f.spot, w.place
    from unnest($4::int[], $5::int[]) with ordinality as w(lane, place, number)
    join windlass.lane l on l.lane = w.lane
    join windlass.queue q on q.queue = l.queue and not q.paused
    cross join generate_series(0, 4) as p(priority)
    cross join lateral (
        select r.ctid as spot
        from windlass.ready r
        where r.lane = w.lane
            and r.priority = p.priority
            and r.due >= ($11::bigint[])[(w.number - 1) * 5 + p.priority + 1]
            and r.due <= (select now from clock)
            and (r.deadline is null or r.deadline > (select now from clock))
            and (select now from clock) between $12::bigint and $13::bigint
        order by r.due, r.seq + 0
        limit ($7::int[])[w.place + 1] + $9::int
    ) f
),
pick as materialized (
    select f.spot
    from unnest($6::int[], $7::int[]) as w(place, room)
    cross join lateral (
        select r.ctid as spot
        from windlass.ready r
        where r.ctid = any(array(select spot from peek where peek.place = w.place))
        order by r.priority, r.due, r.seq
        limit w.room
        for update skip locked
    ) f
    limit $8::int
),
taken as (
    delete from windlass.ready
    where ctid = any(array(select spot from pick))
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
        t.seq, t.lane, t.priority, t.slow, $10::uuid, t.version, t.expires_at, t.deadline, t.visibility,
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
