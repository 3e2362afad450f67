-- How many jobs are in each state, counted one by one. $1 the time, null for the server's.
select case when r.state in (1, 4) and r.due <= t.now then 2::smallint else r.state end as state, count(*) as count
from windlass.record r,
    (select case when $1::bigint > 1000000000000000 then $1::bigint
        else (extract(epoch from clock_timestamp()) * 1000000)::bigint + coalesce($1::bigint, 0) end as now) t
where r.state is not null
group by 1
