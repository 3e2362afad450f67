-- Notes that a migration was applied. ?1 its number.
insert into windlass_version (version) values (?1);
