-- Queues that are controlled, or that have strands from when they were. By queue_pkey and strand_queue_key_lane_key.
select q.queue, q.name, q.control
from windlass.queue q
where q.control is not null or exists (select from windlass.strand s where s.queue = q.queue)
