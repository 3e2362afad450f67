-- Forgets the oldest acts. ?1 how many are kept. Primary key.
delete from windlass_act
where seq <= (select max(seq) from windlass_act) - ?1;
