-- Lets the waiting jobs of a strand stand where they came from. ?1 the strand, ?2 lane. Primary key.
update windlass_ready
set lane = ?2, flags = flags & ~4
where lane = ?1;
