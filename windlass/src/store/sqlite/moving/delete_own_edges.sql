-- Removes what a job depends on. ?1 seq. Index windlass_edge_child.
delete from windlass_edge where seq = ?1;
