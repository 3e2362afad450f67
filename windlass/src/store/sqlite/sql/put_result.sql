-- Keeps the result of a job that has ended. ?1 seq, ?2 type, ?3 result. Primary key.
update windlass_done
set result_type = ?2, result = ?3
where seq = ?1;
