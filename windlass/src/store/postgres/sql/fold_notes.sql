-- Takes in the notes that ended leases left: how many fewer run, these keys are to be looked at, these gates are held.
-- $1 queue, $2 how many notes at most. The queue is held.
-- A strand that is open stays so without being looked at, unless its place among others may have changed. Its key had room, so
-- no other strand of the key waits for what ended.
-- By note_pkey, strand_pkey, strand_queue_key_lane_key, then by place in the table; gate_pkey.
with n as (
    delete from windlass.note
    where queue = $1::int
        and note = any(array(select note from windlass.note where queue = $1::int order by note limit $2::bigint))
    returning strands, counts, lane, key, hold
),
freed as materialized (
    select f.strand, f.count, s.spot, s.key, s.stays
    from (
        select u.strand, sum(u.count)::int as count
        from n
        cross join lateral unnest(n.strands, n.counts) as u(strand, count)
        group by u.strand
    ) f
    cross join lateral (
        select ctid as spot, key, look = 0 and class = 0 and owner is null as stays
        from windlass.strand
        where strand = f.strand
        offset 0
    ) s
),
keys as materialized (
    select k.key, max(k.hold) as hold, bool_or(k.named) as named
    from (
        select f.key, null::bigint as hold, false as named from freed f where not f.stays
        union all
        select n.key, n.hold, true from n where n.key is not null
    ) k
    group by k.key
),
touched as materialized (
    select t.spot, sum(t.count)::int as count, max(t.hold) as hold, bool_or(t.named) as named
    from (
        select f.spot, f.count, null::bigint as hold, false as named from freed f
        union all
        select s.spot, 0, k.hold, k.named
        from keys k
        cross join lateral (
            select ctid as spot from windlass.strand where queue = $1::int and key = k.key offset 0
        ) s
    ) t
    group by t.spot
),
looked as (
    update windlass.strand s
    set running = s.running - t.count,
        held_until = greatest(s.held_until, t.hold),
        look = case
            when s.lane = 0 then s.look
            when s.look = 4000000000000000001 and not t.named then s.look
            when s.look = 0 and s.class = 0 and not t.named then 0
            when s.look in (0, 2) then 2
            else 1
        end
    from touched t
    where s.ctid = t.spot
    returning s.lane, t.count
)
update windlass.gate g
set running = g.running - t.count, held_until = greatest(g.held_until, t.hold)
from (
    select t.lane, sum(t.count)::int as count, max(t.hold) as hold
    from (
        select l.lane, l.count, null::bigint as hold from looked l where l.count <> 0
        union all
        select n.lane, 0, n.hold from n where n.lane is not null
    ) t
    group by t.lane
) t
where g.queue = $1::int and g.lane = t.lane
