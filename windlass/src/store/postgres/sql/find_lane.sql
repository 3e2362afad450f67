-- The lanes of queues and types. $1 queue names, $2 types. By queue_name_key and lane_queue_job_type_key.
select l.lane, q.name, l.job_type
from unnest($1::text[], $2::text[]) as n(name, job_type)
join windlass.queue q on q.name = n.name
join windlass.lane l on l.queue = q.queue and l.job_type = n.job_type
