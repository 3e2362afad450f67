-- Makes a workflow's record. ?1 seq, ?2 id, ?3 name, ?4 created_at.
insert into windlass_workflow (seq, id, name, created_at, pruned) values (?1, ?2, ?3, ?4, 0);
