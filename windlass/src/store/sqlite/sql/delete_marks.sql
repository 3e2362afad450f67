-- Removes the marks of a job. ?1 seq. Primary key.
delete from windlass_mark
where seq = ?1;
