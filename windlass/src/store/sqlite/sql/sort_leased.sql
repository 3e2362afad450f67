-- Counts a RUNNING job under its strand. ?1 seq, ?2 the strand. Flag 4 says so. Primary key.
update windlass_leased
set lane = ?2, flags = flags | 4
where seq = ?1;
