-- Forgets samples of a step. $1 step in seconds, $2 the moment before which they go. By sample_pkey.
delete from windlass.sample
where step = $1::bigint and at < $2::bigint
