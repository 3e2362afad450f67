-- Removes what was submitted. ?1 seq. Primary key.
delete from windlass_job
where seq = ?1;
