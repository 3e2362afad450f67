-- Opens or closes an edge. ?1 parent, ?2 seq, ?3 kind, ?4 open.
update windlass_edge
set open = ?4
where parent = ?1 and seq = ?2 and kind = ?3;
