-- Writes what may change of what was submitted. ?1 seq, ?2 priority, ?3 inherited priority, ?4 options or null. Primary key.
update windlass_job
set priority = ?2, inherited = ?3, options = ?4
where seq = ?1;
