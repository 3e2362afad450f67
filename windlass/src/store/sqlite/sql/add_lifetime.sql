-- Notes when a lifetime ends. ?1 deadline, ?2 seq.
insert or ignore into windlass_lifetime (deadline, seq) values (?1, ?2);
