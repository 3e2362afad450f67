-- A workflow's record. ?1 id. Index windlass_workflow_id.
select seq, id, name, created_at, pruned
from windlass_workflow
where id = ?1;
