-- The flow control of a queue. ?1 name. Primary key.
select control
from windlass_queue
where name = ?1 and control is not null;
