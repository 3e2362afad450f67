-- Forgets a move.
delete from windlass_move;
