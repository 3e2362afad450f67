-- Takes a job out of the pending ones. ?1 seq. Primary key.
delete from windlass_pending
where seq = ?1;
