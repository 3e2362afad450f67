-- The ids of jobs. $1 sequences. By job_pkey.
select seq, id from windlass.job where seq = any($1::bigint[])
