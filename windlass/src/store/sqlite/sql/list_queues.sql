-- Queues that were paused, resumed or controlled.
select name, paused, control
from windlass_queue;
