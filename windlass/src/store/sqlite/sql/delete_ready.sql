-- Takes a job out of the ready ones. ?1 lane, ?2 priority, ?3 at, ?4 seq. Primary key.
delete from windlass_ready
where lane = ?1 and priority = ?2 and at = ?3 and seq = ?4;
