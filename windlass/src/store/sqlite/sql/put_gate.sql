-- Keeps a gate. ?1 queue, ?2 name, ?3 gate as JSON, ?4 owner.
insert into windlass_gate (queue, name, gate, owner) values (?1, ?2, ?3, ?4)
on conflict (queue, name) do update set gate = excluded.gate, owner = excluded.owner;
