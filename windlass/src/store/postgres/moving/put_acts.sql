-- Records acts. $1 the acts as JSON, oldest first.
insert into windlass.act (record)
select i.record from unnest($1::text[]) with ordinality as i(record, place) order by i.place
