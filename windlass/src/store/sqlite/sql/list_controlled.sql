-- The controlled queues.
select name, control
from windlass_queue
where control is not null;
