-- Puts rows into the table ready. $1 the rows as JSON.
insert into windlass.ready select * from json_populate_recordset(null::windlass.ready, $1::text::json)
