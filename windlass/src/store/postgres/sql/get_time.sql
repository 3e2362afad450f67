-- The store's time. $1 the time, null for the server's.
select
    case when $1::bigint > 1000000000000000 then $1::bigint
        else (extract(epoch from clock_timestamp()) * 1000000)::bigint + coalesce($1::bigint, 0) end as now
