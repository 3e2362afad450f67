-- Takes over what a lane remembers. ?1 lane, ?2 jobs removed, ?3 to ?6 jobs that left COMPLETED, FAILED, DEAD_LETTER and CANCELLED,
-- ?7 attempts retried, ?8 attempts lost. Primary key.
update windlass_lane
set
    removed = ?2,
    left_completed = ?3,
    left_failed = ?4,
    left_dead_letter = ?5,
    left_cancelled = ?6,
    retried = ?7,
    lost = ?8
where lane = ?1;
