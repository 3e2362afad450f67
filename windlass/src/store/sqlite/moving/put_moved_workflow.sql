-- Keeps a workflow's record. Parameters in table order.
insert or replace into windlass_workflow (seq, id, name, created_at, pruned) values (?1, ?2, ?3, ?4, ?5);
