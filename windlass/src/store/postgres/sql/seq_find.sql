-- The sequences of jobs. $1 ids. By job_id_key.
select seq from windlass.job where id = any($1::uuid[])
