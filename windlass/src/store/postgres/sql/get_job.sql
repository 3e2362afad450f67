-- Jobs with their state. $1 sequences. By job_pkey and the keys of the narrow tables.
select * from windlass.record where seq = any($1::bigint[])
