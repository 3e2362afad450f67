-- What was noted of changes, oldest first. ?1 how many at most. Primary key.
select number, kind, seq, scope, key from windlass_change order by number limit ?1;
