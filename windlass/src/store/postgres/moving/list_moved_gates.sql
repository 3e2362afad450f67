-- What is known of the gates of a controlled queue beside what runs: its own (lane 0) and those of its types, without a key, and
-- those of its keys. What notes hold that no claim has taken in counts. $1 queue. Reads all its strands: for a move.
select
    g.lane, null::text as key, g.tat, g.turn, null::bigint as owner, null::text as limits,
    greatest(g.held_until, (select max(n.hold) from windlass.note n where n.queue = $1::int and n.lane = g.lane)) as held_until
from windlass.gate g
where g.queue = $1::int
union all
select
    0, k.key, k.tat, k.turn, k.owner, k.limits,
    greatest(k.held_until, (select max(n.hold) from windlass.note n where n.queue = $1::int and n.key = k.key))
from (
    select s.key, max(s.tat) as tat, max(s.turn) as turn, max(s.owner) as owner, max(s.limits) as limits,
        max(s.held_until) as held_until
    from windlass.strand s
    where s.queue = $1::int
    group by s.key
) k
