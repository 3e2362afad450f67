-- Forgets a strand without jobs. ?1 lane. Primary key.
delete from windlass_lane
where lane = ?1;
