-- As claim_lane, from a controlled queue that does not tell keys apart and has room for all that is wanted: what is taken is
-- counted. $1 the time; $2 worker; $3 lease time, null for each job's visibility timeout; $4 lane; $5 how many; $6 for each priority
-- the moment before which nothing can be due; $7 the part that the tokens have in common; $8 the strand on which what runs is
-- counted; $9 queue, which is held.
-- By ready_claim, then by place in the table; job_pkey, strand_pkey and gate_pkey.
with taken as (
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
                and r.due <= $1::bigint
                and (r.deadline is null or r.deadline > $1::bigint)
            order by r.due, r.seq + 0
            limit $5::int
            for update of r skip locked
        ) f
        limit $5::int))
    returning
        seq, lane, priority, slow, due, deadline, visibility, lease_max, kept, version + 1 as version,
        attempt + 1 as attempt, failures, lost, generation, failed_at, failure,
        least(
            $1::bigint + least(coalesce($3::bigint, visibility), coalesce(lease_max, 1810000000)),
            deadline) as expires_at
),
held as (
    insert into windlass.leased
        (seq, lane, priority, slow, token, version, expires_at, deadline, visibility, lease_max, kept, attempt, failures, lost,
        generation, scheduled_at, started_at, failed_at, failure, worker, strand)
    select
        t.seq, t.lane, t.priority, t.slow, $7::uuid, t.version, t.expires_at, t.deadline, t.visibility,
        t.lease_max, t.kept, t.attempt, t.failures, t.lost, t.generation, t.due, $1::bigint, t.failed_at, t.failure, $2::text, $8::int
    from taken t
),
counted as (
    update windlass.strand
    set running = running + (select count(*)::int from taken)
    where strand = $8::int and exists (select from taken)
),
summed as (
    insert into windlass.gate (queue, lane, running)
    select $9::int, $4::int, count(*)::int
    from taken
    having count(*) > 0
    on conflict (queue, lane) do update set running = gate.running + excluded.running
)
select
    t.seq, j.id, t.lane, t.version, t.expires_at, t.attempt, t.failures, t.lost, t.generation,
    t.due as scheduled_at, $1::bigint as started_at, t.failed_at, t.failure, j.priority, j.inherited,
    j.created_at, j.deadline, j.content_type, j.payload, j.options, j.depends_on, j.workflow, j.schedule, j.slot,
    j.spawned_by, j.progress, j.checkpoint, t.priority as claimed_priority
from taken t
cross join lateral (select * from windlass.job where seq = t.seq offset 0) j
