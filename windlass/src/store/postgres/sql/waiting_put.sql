-- Puts rows into the table waiting. $1 the rows as JSON.
insert into windlass.waiting select * from json_populate_recordset(null::windlass.waiting, $1::text::json)
