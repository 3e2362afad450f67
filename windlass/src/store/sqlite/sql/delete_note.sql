-- Removes a job's notes. ?1 seq. Primary key.
delete from windlass_note
where seq = ?1;
