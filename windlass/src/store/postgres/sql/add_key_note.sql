-- Leaves behind that a key is to be looked at, or that a gate is held, where the queue is controlled. $1 queue names; $2 lanes, 0 for
-- the queue's own gate, null for that of a key; $3 keys, null for other gates; $4 until when, null for no hold. By queue_name_key.
insert into windlass.note (queue, lane, key, hold)
select q.queue, i.lane, i.key, i.hold
from unnest($1::text[], $2::int[], $3::text[], $4::bigint[]) as i(name, lane, key, hold)
cross join lateral (select queue, control from windlass.queue where name = i.name offset 0) q
where q.control is not null
