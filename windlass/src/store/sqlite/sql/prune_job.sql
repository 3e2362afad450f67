-- Removes jobs from windlass_job. Parameters as in prune_lifetime.sql. Primary key.
delete from windlass_job
where seq between ?1 and ?2 and substr(?3, seq - ?1 + 1, 1) = x'01';
