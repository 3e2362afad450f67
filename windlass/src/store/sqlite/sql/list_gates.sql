-- What is kept of the gates of a queue. ?1 queue. Primary key.
select name, gate
from windlass_gate
where queue = ?1;
