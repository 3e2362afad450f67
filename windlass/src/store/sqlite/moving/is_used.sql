-- Whether the store holds anything.
select
    exists (select 1 from windlass_job) or exists (select 1 from windlass_key) or exists (select 1 from windlass_schedule)
    or exists (select 1 from windlass_workflow) or exists (select 1 from windlass_store where accepted > 0);
