-- The sequences of jobs after a place. $1 the place, $2 how many at most. By job_pkey.
select seq from windlass.job where seq > $1::bigint order by seq limit $2::bigint
