-- Changes a RUNNING job's flags. ?1 seq, ?2 flags. Primary key.
update windlass_leased
set flags = ?2
where seq = ?1;
