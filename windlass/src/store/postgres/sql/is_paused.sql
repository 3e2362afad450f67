-- Whether an operator paused a queue. $1 name. By queue_name_key.
select halted as paused from windlass.queue where name = $1::text
