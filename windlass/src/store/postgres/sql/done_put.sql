-- Puts rows into the table done. $1 the rows as JSON.
insert into windlass.done select * from json_populate_recordset(null::windlass.done, $1::text::json)
