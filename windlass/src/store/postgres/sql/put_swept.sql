-- Notes that everything in a queue was counted anew. $1 queue, $2 the time. By gate_pkey.
update windlass.gate set swept_at = $2::bigint where queue = $1::int and lane = 0
