-- What comes before a job of a key on its strands: how many jobs of the key, and while it is open, how many other keys.
-- $1 queue; $2 key; $3 positions and $4 sequences, for each priority the place before which a job comes before it; $5 the limit.
-- By strand_queue_key_lane_key, ready_claim and strand_next.
with own as materialized (
    select strand, look, level, class, turn from windlass.strand where queue = $1::int and key = $2::text and lane <> 0
),
best as materialized (
    select level, class, turn from own where look in (0, 2) order by level, class, turn limit 1
)
select (
    select count(*)
    from (
        select 1
        from own o
        cross join generate_series(0, 4) as p(priority)
        cross join lateral (
            select 1
            from windlass.ready r
            where r.lane = o.strand and r.priority = p.priority
                and (r.due, r.seq + 0) < (($3::bigint[])[p.priority + 1], ($4::bigint[])[p.priority + 1])
            limit $5::bigint
        ) r
        limit $5::bigint
    ) j
) as jobs,
(
    select count(distinct f.key)
    from (
        select s.key
        from best b
        cross join windlass.lane l
        cross join generate_series(0, 4) as p(level)
        cross join lateral (
            select s.key
            from windlass.strand s
            where s.lane = l.lane and s.level = p.level and s.look = 0 and s.key <> $2::text
                and (p.level < b.level or p.level = b.level and (s.class, s.turn) < (b.class, b.turn))
            limit $5::bigint
        ) s
        where l.queue = $1::int
        limit $5::bigint
    ) f
) as keys
