-- Counts a pruned job of a workflow. ?1 workflow.
update windlass_workflow
set pruned = pruned + 1
where id = ?1;
