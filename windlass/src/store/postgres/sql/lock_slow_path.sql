-- Waits for the turn of the slow path, which ends with the transaction, and then reads the clock.
-- $1 the time, null for the server's; $2 the lock of this schema.
select case when $1::bigint > 1000000000000000 then $1::bigint
    else (extract(epoch from clock_timestamp()) * 1000000)::bigint + coalesce($1::bigint, 0) end as now
from pg_advisory_xact_lock($2::bigint)
