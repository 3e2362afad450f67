-- Removes the end of a lifetime. ?1 deadline, ?2 seq. Primary key.
delete from windlass_lifetime
where deadline = ?1 and seq = ?2;
