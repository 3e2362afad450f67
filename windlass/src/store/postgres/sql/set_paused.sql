-- Pauses or resumes a queue; nothing is counted when it was so already. $1 name, $2 paused. By queue_name_key.
update windlass.queue set paused = $2::boolean where name = $1::text and paused <> $2::boolean
