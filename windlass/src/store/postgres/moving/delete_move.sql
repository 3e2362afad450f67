-- Forgets a move.
delete from windlass.move
