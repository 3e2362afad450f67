-- What the store remembers of a move.
select record from windlass_move where only_row = 1;
