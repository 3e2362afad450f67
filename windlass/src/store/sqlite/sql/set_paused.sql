-- Pauses or resumes a queue. ?1 name, ?2 paused.
insert into windlass_queue (name, paused) values (?1, ?2)
on conflict (name) do update set paused = excluded.paused;
