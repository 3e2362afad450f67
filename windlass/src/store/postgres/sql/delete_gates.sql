-- Forgets the gates and notes of a queue that is no longer controlled, and all its strands without jobs. $1 queue.
-- By gate_pkey, note_pkey and strand_queue_key_lane_key.
with n as (delete from windlass.note where queue = $1::int),
g as (delete from windlass.gate where queue = $1::int)
delete from windlass.strand s
where s.queue = $1::int
    and not exists (select from windlass.ready r where r.lane = s.strand offset 0)
