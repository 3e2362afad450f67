-- Removes the edges from and to a job. ?1 seq. Primary key and index windlass_edge_child.
delete from windlass_edge
where parent = ?1 or seq = ?1;
