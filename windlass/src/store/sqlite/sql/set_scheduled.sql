-- Makes a job that is due SCHEDULED in name too. ?1 lane, ?2 priority, ?3 at, ?4 seq. Primary key.
update windlass_ready
set kind = 0, position = null, scheduled_at = null, updated_at = null
where lane = ?1 and priority = ?2 and at = ?3 and seq = ?4;
