-- Keeps a gate. ?1 queue, ?2 name, ?3 gate as JSON.
insert into windlass_gate (queue, name, gate) values (?1, ?2, ?3)
on conflict (queue, name) do update set gate = excluded.gate;
