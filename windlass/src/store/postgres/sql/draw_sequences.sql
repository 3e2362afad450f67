-- Draws sequences for new jobs. $1 how many.
select nextval('windlass.seq') as seq from generate_series(1, $1::int)
