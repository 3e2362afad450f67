-- Keeps the flow control of a queue, or its end. ?1 name, ?2 control as JSON or null.
insert into windlass_queue (name, paused, control) values (?1, 0, ?2)
on conflict (name) do update set control = excluded.control;
