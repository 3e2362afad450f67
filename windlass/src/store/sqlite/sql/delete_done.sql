-- Takes a job out of the ended ones. ?1 seq. Primary key.
delete from windlass_done
where seq = ?1;
