-- Queues that were paused or resumed.
select name, paused
from windlass_queue;
