-- Takes the narrow rows of jobs from wherever they are. $1 sequences, $2 ids.
with r as (delete from windlass.ready where seq = any($1::bigint[])),
l as (delete from windlass.leased where id = any($2::uuid[])),
w as (delete from windlass.waiting where seq = any($1::bigint[]))
delete from windlass.done where seq = any($1::bigint[])
