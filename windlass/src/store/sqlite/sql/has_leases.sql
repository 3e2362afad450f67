-- Whether any job is running.
select exists (select 1 from windlass_leased);
