-- The ids of jobs, and their options where these name who submitted them. $1 sequences. By job_pkey.
select seq, id, case when options like '%"submitted_by"%' then options end as options from windlass.job where seq = any($1::bigint[])
