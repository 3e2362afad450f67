-- Forgets samples of a step. ?1 step in seconds, ?2 the moment before which they go. Primary key.
delete from windlass_sample
where step = ?1 and at < ?2;
