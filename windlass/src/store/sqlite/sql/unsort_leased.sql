-- Counts the RUNNING jobs of a strand as those of a plain queue again. ?1 the strand, ?2 lane. Reads all leases: only when
-- the control of a queue ends.
update windlass_leased
set lane = ?2, flags = flags & ~4
where lane = ?1;
