-- Forgets all gates of a queue. ?1 queue. Primary key.
delete from windlass_gate
where queue = ?1;
