-- Whether the store holds anything.
select exists (select from windlass.job) or exists (select from windlass.key) or exists (select from windlass.schedule)
    or exists (select from windlass.workflow) or exists (select from windlass.event) as used
