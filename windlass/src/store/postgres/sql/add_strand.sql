-- Makes strands that do not exist, with what is known of their keys. $1 queue; $2 keys and $3 lanes, each pair once. The queue is
-- held. By strand_queue_key_lane_key.
insert into windlass.strand
    (queue, key, lane, look, level, class, turn, running, tat, held_until, owner, limits)
select
    $1::int, i.key, i.lane, 4000000000000000001, 0, 0, coalesce(k.turn, 0), 0, coalesce(k.tat, 0), k.held_until, k.owner, k.limits
from unnest($2::text[], $3::int[]) as i(key, lane)
left join lateral (
    select s.turn, s.tat, s.held_until, s.owner, s.limits
    from windlass.strand s
    where s.queue = $1::int and s.key = i.key
    limit 1
) k on true
where not exists (
    select from windlass.strand s where s.queue = $1::int and s.key = i.key and s.lane = i.lane)
