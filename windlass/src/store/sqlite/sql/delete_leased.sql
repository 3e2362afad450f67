-- Takes a job out of the leased ones. ?1 seq. Primary key.
delete from windlass_leased
where seq = ?1;
