-- Forgets a gate. ?1 queue, ?2 name. Primary key.
delete from windlass_gate
where queue = ?1 and name = ?2;
