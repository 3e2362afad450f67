-- The row of numbers, and whether the store takes writes.
select accepted, pruned, tick, latest, id_key, closed
from windlass_store
where only_row = 1;
