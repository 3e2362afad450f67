-- Takes the narrow rows of jobs from wherever they are. $1 sequences. By their primary keys.
with r as (delete from windlass.ready where seq = any($1::bigint[])),
l as (delete from windlass.leased where seq = any($1::bigint[])),
w as (delete from windlass.pending where seq = any($1::bigint[]))
delete from windlass.done where seq = any($1::bigint[])
