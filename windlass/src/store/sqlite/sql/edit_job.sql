-- Writes what may be edited. ?1 seq, ?2 priority, ?3 options or null. Primary key.
update windlass_job
set priority = ?2, options = ?3
where seq = ?1;
