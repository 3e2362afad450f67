-- Lets a job depend on another. ?1 parent, ?2 seq, ?3 kind, ?4 open. Gives 0 rows where it does so already.
insert or ignore into windlass_edge (parent, seq, kind, open) values (?1, ?2, ?3, ?4);
