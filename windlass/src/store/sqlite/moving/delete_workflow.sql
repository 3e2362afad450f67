-- Removes a workflow's record. ?1 seq. Primary key.
delete from windlass_workflow where seq = ?1;
