-- Takes the jobs of a controlled queue that were picked, at the door or on strands, and moves their rows from ready to leased.
-- $1 the time; $2 worker; $3 lease time, null for each job's visibility timeout; $4 sequences, sorted, $5 strands and $6 lanes of the
-- jobs; $7 the part that the tokens have in common; $8 queue, which is held. width_bucket finds the place of a job among these.
-- A job that another transaction holds, or that is gone, was counted already: a note takes that back and has its key looked at.
-- By ready_pkey, then by place in the table; job_pkey.
with spots as materialized (
    select r.ctid as spot
    from windlass.ready r
    where r.seq = any($4::bigint[]) and (r.deadline is null or r.deadline > $1::bigint)
    for update of r skip locked
),
taken as (
    delete from windlass.ready r
    where r.ctid = any(array(select spot from spots))
    returning
        r.seq, ($6::int[])[width_bucket(r.seq, $4::bigint[])] as lane, ($5::int[])[width_bucket(r.seq, $4::bigint[])] as strand,
        r.priority, r.slow, r.due, r.deadline, r.visibility, r.lease_max, r.kept, r.version + 1 as version,
        r.attempt + 1 as attempt, r.failures, r.lost, r.generation, r.failed_at, r.failure,
        least($1::bigint + least(coalesce($3::bigint, r.visibility), coalesce(r.lease_max, 1810000000)), r.deadline) as expires_at
),
held as (
    insert into windlass.leased
        (seq, lane, priority, slow, token, version, expires_at, deadline, visibility, lease_max, kept, attempt, failures, lost,
        generation, scheduled_at, started_at, failed_at, failure, worker, strand)
    select
        t.seq, t.lane, t.priority, t.slow, $7::uuid, t.version, t.expires_at, t.deadline, t.visibility,
        t.lease_max, t.kept, t.attempt, t.failures, t.lost, t.generation, t.due, $1::bigint, t.failed_at, t.failure, $2::text, t.strand
    from taken t
),
missed as (
    insert into windlass.note (queue, strands, counts, key)
    select $8::int, array[w.strand], array[1], s.key
    from unnest($4::bigint[], $5::int[]) as w(seq, strand)
    cross join lateral (select key from windlass.strand where strand = w.strand offset 0) s
    where (select count(*) from taken) < cardinality($4::bigint[])
        and not exists (select from taken t where t.seq = w.seq)
)
select
    t.seq, j.id, t.lane, t.version, t.expires_at, t.attempt, t.failures, t.lost, t.generation,
    t.due as scheduled_at, $1::bigint as started_at, t.failed_at, t.failure, j.priority, j.inherited,
    j.created_at, j.deadline, j.content_type, j.payload, j.options, j.depends_on, j.workflow, j.schedule, j.slot,
    j.spawned_by, j.progress, j.checkpoint
from taken t
cross join lateral (select * from windlass.job where seq = t.seq offset 0) j
