-- Removes a workflow that has no jobs left. ?1 workflow. Indexes windlass_workflow_id and windlass_job_workflow.
delete from windlass_workflow
where id = ?1 and not exists (select 1 from windlass_job where workflow = ?1);
