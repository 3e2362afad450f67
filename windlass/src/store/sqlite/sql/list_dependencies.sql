-- What a job depends on. ?1 seq. Index windlass_edge_child.
select parent as other_end, kind, open
from windlass_edge
where seq = ?1
order by parent, kind;
