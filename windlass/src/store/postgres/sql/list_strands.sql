-- The strands that a claim looks at, with their first jobs: the first open ones of each lane, those whose moment has come,
-- those of keys that are named, and all others of the same keys.
-- $1 the time, null for the server's; $2 queue; $3 lanes that are wanted; $4 how many open ones of each, and $5 how many to pass
-- over first; $6 how many whose moment has come; $7 keys; $8 whether jobs wait on strands, or all at the door; $9 how many jobs
-- at least, $11 of each priority, or of the most urgent ones in all; $10 whether owners are asked for.
-- By strand_next, strand_later, strand_queue_key_lane_key and ready_claim.
with clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
),
met as materialized (
    select distinct k.key
    from (
        select f.key
        from unnest($3::int[]) as w(lane)
        cross join lateral (
            select o.key
            from generate_series(0, 4) as p(level)
            cross join lateral (
                select s.key
                from windlass.strand s
                where s.lane = w.lane and s.level = p.level and s.look = 0
                order by s.class, s.turn
                limit $4::int + $5::int
            ) o
            offset $5::int
            limit $4::int
        ) f
        union all
        select l.key
        from (
            select s.key
            from windlass.strand s
            where s.queue = $2::int and s.look > 0 and s.look <= (select now from clock)
            order by s.look
            limit $6::int
        ) l
        union all
        select n.key from unnest($7::text[]) as n(key)
    ) k
),
strands as materialized (
    select s.*
    from met m
    cross join lateral (select * from windlass.strand where queue = $2::int and key = m.key offset 0) s
),
heads as materialized (
    select greatest($9::int, 2 * $4::int / greatest(count(*)::int, 1)) as most from strands
)
select
    s.strand, s.key, s.lane, s.look, s.level, s.class, s.turn, s.running, s.tat, s.held_until, s.owner, s.limits,
    h.seqs, h.priorities, h.dues, (select most from heads) as most, $11::boolean as of_each_priority,
    o.id as owner_id, o.state as owner_state, w.priority as owner_priority, w.due as owner_due
from strands s
left join lateral (
    select array_agg(r.seq) as seqs, array_agg(r.priority) as priorities, array_agg(r.due) as dues
    from (
        select r.seq, r.priority, r.due
        from generate_series(0, 4) as p(priority)
        cross join lateral (
            select r.seq, r.priority, r.due
            from windlass.ready r
            where r.lane = case when $8::boolean then s.strand else s.lane end and r.priority = p.priority
                and r.due <= (select now from clock)
                and (r.deadline is null or r.deadline > (select now from clock))
            order by r.due, r.seq + 0
            limit (select most from heads)
        ) r
        where $11::boolean
        union all
        (select r.seq, r.priority, r.due
        from windlass.ready r
        where r.lane = s.strand and not $11::boolean
            and r.due <= (select now from clock)
            and (r.deadline is null or r.deadline > (select now from clock))
        order by r.lane, r.priority, r.due, r.seq + 0
        limit (select most from heads))
    ) r
    where s.lane <> 0
) h on true
left join lateral (
    select r.id, r.state from windlass.record r where $10::boolean and r.seq >= s.owner and r.seq <= s.owner
) o on true
left join lateral (
    select r.priority, r.due
    from windlass.ready r
    where $10::boolean and r.seq >= s.owner and r.seq <= s.owner and r.lane in (s.strand, s.lane)
        and r.due <= (select now from clock)
        and (r.deadline is null or r.deadline > (select now from clock))
) w on true
