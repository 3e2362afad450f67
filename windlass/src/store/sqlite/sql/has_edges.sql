-- Whether any job depends on another.
select exists (select 1 from windlass_edge);
