-- The jobs that depend, or once depended, on this one. ?1 parent. Primary key.
select seq as other_end, kind, open
from windlass_edge
where parent = ?1
order by seq, kind;
