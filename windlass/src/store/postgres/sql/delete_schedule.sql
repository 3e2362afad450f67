-- Forgets a schedule. $1 name. By schedule_pkey.
delete from windlass.schedule where name = $1::text
