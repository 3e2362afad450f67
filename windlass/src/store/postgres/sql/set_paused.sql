-- Pauses or resumes a queue; nothing is counted when it was so already. $1 name, $2 paused. By queue_name_key.
update windlass.queue
set halted = $2::boolean, paused = $2::boolean or control is not null
where name = $1::text and halted <> $2::boolean
