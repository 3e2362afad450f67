-- Notes that a RUNNING job was asked to stop; the first ask is kept. ?1 seq, ?2 the ask. Primary key.
update windlass_leased
set cancel = coalesce(cancel, ?2)
where seq = ?1;
