-- Stores one job as insert does, which spends more on taking arrays apart than this on everything but the rows.
-- $1 the time, null for the server's; $2 what its id ends with and $3 the mask of its sequence; $4 payload; $5 lane;
-- $6 priority; $7 delay and $8 moment to run at, null for none; $9 lifetime; $10 visibility timeout; $11 content type;
-- $12 options; $13 whether the end needs the slow path; $14 the last moment at which it would first run beyond its
-- lifetime, null where it would not.
with new as materialized (
    select
        i.seq, i.now, i.now + $9::bigint as deadline,
        nullif(greatest(coalesce(i.now + $7::bigint, $8::bigint), i.now), i.now) as run_at
    from (
        select
            nextval('windlass.seq') as seq,
            coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
    ) as i
    where $14::bigint is null or i.now > $14::bigint
),
stored as (
    insert into windlass.job
        (seq, id, lane, priority, created_at, deadline, visibility, content_type, payload, options)
    select
        n.seq, (lpad(to_hex(n.seq # $3::bigint), 12, '0') || $2::text)::uuid, $5::int, $6::smallint, n.now, n.deadline,
        $10::bigint, $11::text, $4::bytea, $12::text
    from new n
),
placed as (
    insert into windlass.ready
    select
        n.seq, $5::int, $6::smallint, case when n.run_at is null then 2 else 1 end, $13::boolean,
        coalesce(n.run_at, n.now), n.deadline, $10::bigint, 0, 0, 0, 0, 0,
        null, case when n.run_at is null then null else n.now end, null, null, null
    from new n
)
insert into windlass.event (at, lane, kind, count, seqs)
select n.now, $5::int, 9, 1, array[n.seq]
from new n
returning at, lane, seqs
