-- What is kept of a gate. ?1 queue, ?2 name. Primary key.
select gate
from windlass_gate
where queue = ?1 and name = ?2;
