-- Keeps what the store remembers of a move. ?1 the record.
insert into windlass_move (only_row, record) values (1, ?1)
on conflict (only_row) do update set record = excluded.record;
