-- The names of lanes. $1 their numbers. By lane_pkey.
select l.lane, q.name, l.job_type
from windlass.lane l
join windlass.queue q on q.queue = l.queue
where l.lane = any($1::int[])
