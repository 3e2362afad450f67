-- Makes a lane. ?1 queue, ?2 type.
insert into windlass_lane (queue, type) values (?1, ?2);
