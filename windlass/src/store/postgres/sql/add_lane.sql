-- Makes lanes that do not exist. $1 queue names, $2 types, sorted. By lane_queue_job_type_key. Where the number that was drawn
-- is taken, the lane is not made; then another try draws another.
insert into windlass.lane (queue, job_type)
select q.queue, n.job_type
from unnest($1::text[], $2::text[]) as n(name, job_type)
join windlass.queue q on q.name = n.name
where not exists (select from windlass.lane l where l.queue = q.queue and l.job_type = n.job_type)
order by q.queue, n.job_type
on conflict do nothing
