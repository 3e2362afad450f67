-- Forgets workers that were last heard of before a moment. ?1 the moment.
delete from windlass_worker
where seen_at < ?1;
