-- Keeps a mark of a job. ?1 seq, ?2 name, ?3 value.
insert into windlass_mark (seq, name, value)
values (?1, ?2, ?3);
