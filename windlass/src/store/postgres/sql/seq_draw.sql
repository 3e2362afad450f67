-- Draws sequences for new jobs. $1 how many.
select nextval('windlass.seq') from generate_series(1, $1::int)
