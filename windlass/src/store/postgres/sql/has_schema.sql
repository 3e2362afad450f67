-- Whether there is a schema. $1 its name.
select 1 from pg_namespace where nspname = $1::text
