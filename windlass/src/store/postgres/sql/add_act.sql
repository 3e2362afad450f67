-- Records an act. $1 the act as JSON.
insert into windlass.act (record) values ($1::text)
