-- A schedule. $1 name. By schedule_pkey.
select record from windlass.schedule where name = $1::text
