-- All lanes of queues, and what each queue has been told. $1 queue names. By queue_name_key and lane_queue_job_type_key.
select l.lane, q.name, l.job_type, q.queue, q.control
from windlass.queue q
join windlass.lane l on l.queue = q.queue
where q.name = any($1::text[])
