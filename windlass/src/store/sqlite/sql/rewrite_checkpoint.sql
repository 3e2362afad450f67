-- Replaces a checkpoint that is still what was read. ?1 seq, ?2 the old bytes, ?3 the new ones. Primary key.
update windlass_note
set checkpoint = ?3
where seq = ?1 and checkpoint = ?2;
