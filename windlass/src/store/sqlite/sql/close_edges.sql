-- Closes the edges of a job that has ended. ?1 parent. Primary key.
update windlass_edge
set open = 0
where parent = ?1 and open = 1;
