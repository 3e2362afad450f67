-- Makes queues that do not exist. $1 names, sorted. By queue_name_key.
insert into windlass.queue (name)
select distinct n.name from unnest($1::text[]) as n(name)
where not exists (select from windlass.queue q where q.name = n.name)
order by n.name
on conflict (name) do nothing
