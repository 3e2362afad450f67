-- Keeps what a queue has been told, null for nothing. Plain claims pass over a controlled queue, which is paused for them.
-- $1 its number, $2 the control as JSON. By queue_pkey.
update windlass.queue
set control = $2::text, paused = halted or $2::text is not null
where queue = $1::int
