-- The store's time. $1 the time, null for the server's.
select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
