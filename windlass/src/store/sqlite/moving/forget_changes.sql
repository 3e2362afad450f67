-- Forgets notes of changes. ?1 the newest to forget: numbers are given out in the order of commits. Primary key.
delete from windlass_change where number <= ?1;
