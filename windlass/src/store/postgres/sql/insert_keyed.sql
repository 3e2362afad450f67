-- Stores jobs some of which have idempotency keys: takes the keys that are free or no longer in force, and stores the
-- jobs that have none or whose key was taken (rule I2). Gives these. What is not given stands for another job, or
-- nothing was stored because a job would first run beyond its lifetime.
-- $1 to $12 as in insert; $13 scopes, $14 keys and $15 windows, null where there is none; $16 types.
-- By key_pkey.
with clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
),
wanted as materialized (
    select i.*, c.now
    from unnest(
        $2::uuid[], $3::int[], $4::smallint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[],
        $10::bytea[], $11::text[], $12::boolean[], $13::text[], $14::text[], $15::bigint[], $16::text[]
    ) as i(id, lane, priority, delay, run_at, lifetime, visibility, content_type, payload, options, slow, scope, key,
        window_length, job_type), clock c
    where not exists (
        select from unnest($6::bigint[], $7::bigint[]) as b(run_at, lifetime) where b.run_at >= c.now + b.lifetime)
),
taken as (
    insert into windlass.key as k (scope, key, job, expires_at, fingerprint)
    select w.scope, w.key, w.id, w.now + w.window_length, sha256(
        convert_to(w.job_type || ' ' || coalesce(w.content_type, ''), 'UTF8') || '\x00'::bytea || w.payload)
    from wanted w
    where w.key is not null
    order by w.scope, w.key
    on conflict (scope, key) do update
    set job = excluded.job, expires_at = excluded.expires_at, fingerprint = excluded.fingerprint
    where k.expires_at <= (select now from clock)
    returning k.job
),
new as materialized (
    select
        nextval('windlass.seq') as seq, w.id, w.lane, w.priority, w.now, w.slow, w.visibility, w.content_type,
        w.payload, w.options, w.now + w.lifetime as deadline,
        nullif(greatest(coalesce(w.now + w.delay, w.run_at), w.now), w.now) as run_at
    from wanted w
    where w.key is null or w.id in (select t.job from taken t)
),
stored as (
    insert into windlass.job
        (seq, id, lane, priority, created_at, deadline, visibility, content_type, payload, options)
    select n.seq, n.id, n.lane, n.priority, n.now, n.deadline, n.visibility, n.content_type, n.payload, n.options
    from new n
),
placed as (
    insert into windlass.ready
    select
        n.seq, n.id, n.lane, n.priority, case when n.run_at is null then 2 else 1 end, n.slow,
        coalesce(n.run_at, n.now), n.deadline, n.visibility, 0, 0, 0, 0, 0,
        null, case when n.run_at is null then null else n.now end, null, null, null
    from new n
),
told as (
    insert into windlass.event (at, lane, kind, count, seqs)
    select n.now, n.lane, 9, count(*), array_agg(n.seq)
    from new n
    group by n.now, n.lane
)
select n.id, n.now from new n
