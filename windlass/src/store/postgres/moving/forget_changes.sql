-- Forgets notes of changes. $1 their numbers. By change_pkey.
delete from windlass.change where number = any($1::bigint[])
