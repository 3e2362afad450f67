-- The jobs that wait for this one. ?1 parent. Primary key.
select seq, kind
from windlass_edge
where parent = ?1 and open = 1
order by seq;
