-- Tells a worker to take no more jobs, or to take some again. $1 id; $2 which. By worker_pkey.
update windlass.worker set draining = $2::bool where id = $1::text
