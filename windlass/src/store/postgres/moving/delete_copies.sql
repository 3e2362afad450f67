-- Removes jobs that were copied before, and only what is their own. $1 sequences. By the primary keys.
with j as (delete from windlass.job where seq = any($1::bigint[])),
r as (delete from windlass.ready where seq = any($1::bigint[])),
l as (delete from windlass.leased where seq = any($1::bigint[])),
p as (delete from windlass.pending where seq = any($1::bigint[])),
d as (delete from windlass.done where seq = any($1::bigint[])),
a as (delete from windlass.attempt where seq = any($1::bigint[])),
o as (delete from windlass.log where seq = any($1::bigint[]))
delete from windlass.edge where child = any($1::bigint[])
