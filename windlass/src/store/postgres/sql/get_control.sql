-- What a queue has been told, and its number. $1 name. By queue_name_key.
select queue, control from windlass.queue where name = $1::text
