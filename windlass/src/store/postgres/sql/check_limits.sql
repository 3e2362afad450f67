-- The limits that keys have of their own, after a strand, in order. $1 the last strand; $2 how many at most. By strand_pkey.
select s.strand, q.name, s.key, s.limits
from windlass.strand s
join windlass.queue q on q.queue = s.queue
where s.strand > $1::int and s.limits is not null
order by s.strand
limit $2::bigint
