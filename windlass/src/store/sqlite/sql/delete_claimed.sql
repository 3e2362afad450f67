-- Takes all claimable jobs of a lane and priority out of the ready ones, up to a place. ?1 lane, ?2 priority, ?3 and ?4
-- the place (at, seq), ?5 now. Primary key.
delete from windlass_ready
where lane = ?1 and priority = ?2 and (at, seq) <= (?3, ?4) and (deadline is null or deadline > ?5);
