-- The edges from jobs, to their dependencies. $1 sequences. By edge_pkey.
select parent, child, kind, open from windlass.edge where child = any($1::bigint[])
