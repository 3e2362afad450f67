-- Removes jobs from windlass_mark. Parameters as in prune_lifetime.sql. Primary key.
delete from windlass_mark
where seq between ?1 and ?2 and substr(?3, seq - ?1 + 1, 1) = x'01';
