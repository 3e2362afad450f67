-- Puts edges, or whether they are open. $1 the edges as JSON. By edge_pkey.
insert into windlass.edge (child, parent, kind, open)
select child, parent, kind, open
from json_populate_recordset(null::windlass.edge, $1::text::json)
on conflict (child, parent, kind) do update set open = excluded.open
