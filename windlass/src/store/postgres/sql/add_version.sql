-- Notes a step. $1 its number.
insert into windlass.migration (number) values ($1::int)
