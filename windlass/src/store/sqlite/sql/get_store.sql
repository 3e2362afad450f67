-- The row of numbers.
select accepted, pruned, tick, latest, id_key
from windlass_store
where only_row = 1;
