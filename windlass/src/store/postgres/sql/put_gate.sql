-- Writes the gates of a controlled queue. $1 queue; then, for each: $2 lane; $3 running; $4 tat; $5 held_until; $6 turn.
-- The queue is held. By gate_pkey.
insert into windlass.gate (queue, lane, running, tat, held_until, turn)
select $1::int, i.lane, i.running, i.tat, i.held_until, i.turn
from unnest($2::int[], $3::int[], $4::bigint[], $5::bigint[], $6::bigint[]) as i(lane, running, tat, held_until, turn)
on conflict (queue, lane) do update
set running = excluded.running, tat = excluded.tat, held_until = excluded.held_until, turn = excluded.turn
