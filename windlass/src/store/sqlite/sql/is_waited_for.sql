-- Whether any job waits for this one. ?1 parent. Primary key.
select exists (select 1 from windlass_edge where parent = ?1 and open = 1);
