-- The jobs that depend, or once depended, on this one. ?1 parent. Primary key.
select distinct seq
from windlass_edge
where parent = ?1
order by seq;
