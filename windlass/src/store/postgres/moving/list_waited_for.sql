-- Which of these jobs others wait for. $1 sequences. By edge_parent.
select distinct parent from windlass.edge where parent = any($1::bigint[]) and open
