-- Stores jobs that wait for nothing but perhaps a time: the whole of an ordinary enqueue. Stores none of them when one
-- would first run beyond its lifetime, or its lane does not exist; then nothing is returned.
-- Gives the sequences by lane; they were drawn in the order of the jobs.
-- $1 the time, null for the server's; $2 what ids end with and $3 the masks of their sequences; $4 payloads; $5 for each
-- the place in what follows, from 1: $6 lanes; $7 priorities; $8 delays and $9 moments to run at, null for none;
-- $10 lifetimes; $11 visibility timeouts; $12 content types; $13 options; $14 whether the end needs the slow path. Many
-- jobs are alike, and taking apart an array costs more than looking into one. $15 the last moment at which one of them
-- would first run beyond its lifetime, null where none would; $16 how long an attempt may hold its lease in all, null for the
-- standard; $17 how long it is kept after its end, by terminal state, null where the store's own retention decides.
with clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
),
new as materialized (
    select
        i.seq, (lpad(to_hex(i.seq # i.mask), 12, '0') || i.rest)::uuid as id, c.now, i.payload,
        ($6::int[])[i.kind] as lane, ($7::smallint[])[i.kind] as priority, ($14::boolean[])[i.kind] as slow,
        ($11::bigint[])[i.kind] as visibility, ($16::bigint[])[i.kind] as lease_max, (($17::text[])[i.kind])::bigint[] as kept,
        ($12::text[])[i.kind] as content_type, ($13::text[])[i.kind] as options,
        c.now + ($10::bigint[])[i.kind] as deadline,
        nullif(greatest(coalesce(c.now + ($8::bigint[])[i.kind], ($9::bigint[])[i.kind]), c.now), c.now) as run_at
    from clock c, (
        select nextval('windlass.seq') as seq, u.*
        from unnest($2::text[], $3::bigint[], $4::bytea[], $5::int[]) as u(rest, mask, payload, kind)
    ) as i
    where ($15::bigint is null or c.now > $15::bigint)
        and not exists (
            select from unnest($6::int[]) as w(lane) where not exists (select from windlass.lane l where l.lane = w.lane))
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
)
insert into windlass.event (at, lane, kind, count, seqs)
select n.now, n.lane, 9, count(*), array_agg(n.seq)
from new n
group by n.now, n.lane
returning at, lane, seqs
