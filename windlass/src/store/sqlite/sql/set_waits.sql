-- Says what a PENDING job still waits for. ?1 seq, ?2 waits_all, ?3 waits_any.
update windlass_pending
set waits_all = ?2, waits_any = ?3
where seq = ?1;
