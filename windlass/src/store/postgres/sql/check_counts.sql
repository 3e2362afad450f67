-- How many jobs are in each state, counted one by one. $1 the time, null for the server's.
select case when r.state in (1, 4) and r.due <= t.now then 2::smallint else r.state end as state, count(*) as count
from windlass.record r,
    (select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now) t
where r.state is not null
group by 1
