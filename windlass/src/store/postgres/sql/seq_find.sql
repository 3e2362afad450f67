-- The sequences of jobs whose ids are from before step 5. $1 ids.
-- By job_id_key, which only a schema that has such jobs has.
select id, seq from windlass.job where id = any($1::uuid[])
