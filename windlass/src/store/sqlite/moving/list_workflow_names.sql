-- The sequences of workflows after a place. ?1 seq, ?2 how many at most. Primary key.
select seq from windlass_workflow where seq > ?1 order by seq limit ?2;
