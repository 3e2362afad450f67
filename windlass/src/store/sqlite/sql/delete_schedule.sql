-- Forgets a schedule. ?1 name.
delete from windlass_schedule
where name = ?1;
