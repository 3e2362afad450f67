-- Tells a worker to take no more jobs, or to take some again. ?1 id, ?2 which.
update windlass_worker set draining = ?2
where id = ?1;
