-- Keeps what the store remembers of a move. $1 the record, $2 why the store takes no writes, or null.
insert into windlass.move (record, closed) values ($1::text, $2::text)
on conflict (only_row) do update set record = excluded.record, closed = excluded.closed
