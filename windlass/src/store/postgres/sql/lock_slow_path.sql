-- Waits for the turn of the slow path, which ends with the transaction, and then reads the clock.
-- $1 the time, null for the server's; $2 the lock of this schema.
select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
from pg_advisory_xact_lock($2::bigint)
