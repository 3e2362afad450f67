-- Stores jobs some of which have idempotency keys: takes the keys that are free or no longer in force, and stores the
-- jobs that have none or whose key was taken (rule I2). Gives these. What is not given stands for another job, or
-- nothing was stored because a job would first run beyond its lifetime.
-- $1 to $17 as in insert; $18 scopes, $19 keys and $20 windows, null where there is none; $21 types; $22 until what a key
-- holds, and $23 after how long upkeep looks at it; $24 jobs whose keys are known to be over: taken if they still stand for
-- them.
-- By key_pkey.
with clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
),
wanted as materialized (
    select
        i.*, (lpad(to_hex(i.seq # i.mask), 12, '0') || i.rest)::uuid as id, c.now,
        ($12::text[])[i.kind] as content_type
    from clock c, (
        select nextval('windlass.seq') as seq, u.*
        from unnest(
            $2::text[], $3::bigint[], $4::bytea[], $5::int[], $18::text[], $19::text[], $20::bigint[], $21::text[],
            $22::smallint[], $23::bigint[]
        ) with ordinality as u(rest, mask, payload, kind, scope, key, window_length, job_type, until, look_after, place)
    ) as i
    where ($15::bigint is null or c.now > $15::bigint)
        and not exists (
            select from unnest($6::int[]) as w(lane) where not exists (select from windlass.lane l where l.lane = w.lane))
),
taken as (
    insert into windlass.key as k (scope, key, job, until, first_at, expires_at, look_at, fingerprint)
    select w.scope, w.key, w.id, w.until, w.now, w.now + w.window_length, w.now + w.look_after, sha256(
        convert_to(w.job_type || ' ' || coalesce(w.content_type, ''), 'UTF8') || '\x00'::bytea || w.payload)
    from wanted w
    where w.key is not null
    order by w.scope, w.key
    on conflict (scope, key) do update
    set job = excluded.job, until = excluded.until, first_at = excluded.first_at, expires_at = excluded.expires_at,
        look_at = excluded.look_at, fingerprint = excluded.fingerprint
    where k.expires_at <= (select now from clock) or k.job = any($24::uuid[])
    returning k.job
),
new as materialized (
    select
        w.place, w.seq, w.id, w.now, w.payload, w.content_type,
        ($6::int[])[w.kind] as lane, ($7::smallint[])[w.kind] as priority, ($14::boolean[])[w.kind] as slow,
        ($11::bigint[])[w.kind] as visibility, ($16::bigint[])[w.kind] as lease_max, (($17::text[])[w.kind])::bigint[] as kept,
        ($13::text[])[w.kind] as options,
        w.now + ($10::bigint[])[w.kind] as deadline,
        nullif(greatest(coalesce(w.now + ($8::bigint[])[w.kind], ($9::bigint[])[w.kind]), w.now), w.now) as run_at
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
        (seq, lane, priority, state, slow, due, deadline, visibility, lease_max, kept, version, attempt, failures, lost, generation,
        updated_at)
    select
        n.seq, n.lane, n.priority, case when n.run_at is null then 2 else 1 end, n.slow,
        coalesce(n.run_at, n.now), n.deadline, n.visibility, n.lease_max, n.kept, 0, 0, 0, 0, 0,
        case when n.run_at is null then null else n.now end
    from new n
),
told as (
    insert into windlass.event (at, lane, kind, count, seqs)
    select n.now, n.lane, 9, count(*), array_agg(n.seq)
    from new n
    group by n.now, n.lane
)
select n.place, n.id, n.now from new n
