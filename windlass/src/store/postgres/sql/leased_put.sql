-- Puts rows into the table leased. $1 the rows as JSON.
insert into windlass.leased select * from json_populate_recordset(null::windlass.leased, $1::text::json)
