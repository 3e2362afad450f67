-- The edges to jobs, from their dependents. $1 sequences. By edge_parent.
select parent, child, kind, open from windlass.edge where parent = any($1::bigint[])
