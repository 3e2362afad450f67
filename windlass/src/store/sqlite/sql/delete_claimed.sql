-- Takes all claimable jobs of a lane and priority between two places out of the ready ones. ?1 lane, ?2 priority, ?3 and ?4
-- the first place (at, seq), ?5 and ?6 the last, ?7 now. Primary key.
delete from windlass_ready
where lane = ?1 and priority = ?2 and (at, seq) >= (?3, ?4) and (at, seq) <= (?5, ?6) and (deadline is null or deadline > ?7);
