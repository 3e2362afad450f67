-- The edges to jobs, from their dependents. $1 sequences. By edge_parent.
select e.parent, e.child, e.kind, e.open
from unnest($1::bigint[]) as i(seq)
cross join lateral (select * from windlass.edge where parent = i.seq offset 0) e
