-- Stores jobs that wait for nothing but perhaps a time: the whole of an ordinary enqueue. Stores none of them when one
-- would first run beyond its lifetime; then nothing is returned.
-- $1 the time, null for the server's; $2 ids; $3 lanes; $4 priorities; $5 delays and $6 moments to run at, null for
-- none; $7 lifetimes; $8 visibility timeouts; $9 content types; $10 payloads; $11 options; $12 whether the end needs
-- the slow path.
with clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
),
new as materialized (
    select
        nextval('windlass.seq') as seq, i.id, i.lane, i.priority, c.now, i.slow, i.visibility, i.content_type,
        i.payload, i.options, c.now + i.lifetime as deadline,
        nullif(greatest(coalesce(c.now + i.delay, i.run_at), c.now), c.now) as run_at
    from unnest(
        $2::uuid[], $3::int[], $4::smallint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[],
        $10::bytea[], $11::text[], $12::boolean[]
    ) as i(id, lane, priority, delay, run_at, lifetime, visibility, content_type, payload, options, slow), clock c
    where not exists (
        select from unnest($6::bigint[], $7::bigint[]) as b(run_at, lifetime) where b.run_at >= c.now + b.lifetime)
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
)
insert into windlass.event (at, lane, kind, count, seqs)
select n.now, n.lane, 9, count(*), array_agg(n.seq)
from new n
group by n.now, n.lane
returning at
