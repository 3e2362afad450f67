-- Writes what belongs to a key on all its strands, and has them looked at. $1 queue, $2 key, $3 held_until, $4 owner, $5 limits as
-- JSON. The queue is held. By strand_queue_key_lane_key.
update windlass.strand s
set held_until = $3::bigint, owner = $4::bigint, limits = $5::text,
    look = case when s.lane = 0 then s.look when s.look in (0, 2) then 2 else 1 end
where s.queue = $1::int and s.key = $2::text
