-- Moves the end of a lease. ?1 seq, ?2 expires_at. Primary key.
update windlass_leased
set expires_at = ?2
where seq = ?1;
