-- Keeps how many jobs of a type run. ?1 lane, ?2 counted. Primary key.
update windlass_lane
set counted = ?2
where lane = ?1;
