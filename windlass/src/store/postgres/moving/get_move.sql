-- What the store remembers of a move.
select record from windlass.move
