-- A workflow's record. ?1 seq. Primary key.
select id, name, created_at, pruned from windlass_workflow where seq = ?1;
