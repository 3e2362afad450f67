-- Makes a strand: a lane for one key. ?1 queue, ?2 type, ?3 key.
insert into windlass_lane (queue, type, key) values (?1, ?2, ?3);
