-- Whether a queue is paused. $1 name. By queue_name_key.
select paused from windlass.queue where name = $1::text
