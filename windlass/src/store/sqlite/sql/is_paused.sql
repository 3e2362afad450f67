-- Whether a queue is paused. ?1 name. Primary key.
select paused
from windlass_queue
where name = ?1;
