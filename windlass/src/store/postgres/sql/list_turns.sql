-- As list_strands, where jobs wait on strands and go by priority within a key, which is most often so.
-- $1 the time, null for the server's; $2 queue; $3 lanes that are wanted; $4 how many open strands of each, and $5 how many to pass
-- over first; $6 how many whose moment has come; $7 keys; $8 how many jobs of a key may run that has no limits of its own.
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
heads as materialized (
    select greatest(2, 2 * $4::int / greatest(count(*)::int, 1)) as most from met
)
select
    s.strand, s.key, s.lane, s.look, s.level, s.class, s.turn, s.running, s.tat, s.held_until, s.owner, s.limits,
    h.seqs, h.priorities, h.dues, s.most, false as of_each_priority,
    null::smallint as owner_state, null::smallint as owner_priority, null::bigint as owner_due
from met m
cross join lateral (
    select
        *,
        -- One more than may start: the next one says where the strand stands then.
        least(
            (select most from heads),
            case when limits is null and key <> '' then greatest($8::int - running, 0) + 1 end) as most
    from windlass.strand
    where queue = $2::int and key = m.key
    offset 0
) s
cross join lateral (
    select array_agg(r.seq) as seqs, array_agg(r.priority) as priorities, array_agg(r.due) as dues
    from (
        select r.seq, r.priority, r.due
        from windlass.ready r
        where r.lane = s.strand and r.due <= (select now from clock)
            and (r.deadline is null or r.deadline > (select now from clock))
        order by r.lane, r.priority, r.due, r.seq + 0
        limit s.most
    ) r
) h
