-- The newest samples of a step, newest first. $1 step in seconds, $2 from this moment on, $3 before this one, $4 how many at most.
-- By sample_pkey.
select data
from windlass.sample
where step = $1::bigint and at >= $2::bigint and at < $3::bigint
order by at desc
limit $4::bigint
