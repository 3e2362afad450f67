-- Records an act. ?1 at, ?2 by, ?3 act, ?4 target, ?5 changed, ?6 why.
insert into windlass_act (at, by, act, target, changed, why) values (?1, ?2, ?3, ?4, ?5, ?6);
