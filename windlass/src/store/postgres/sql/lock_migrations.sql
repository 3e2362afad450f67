-- Waits until no other process migrates this schema. $1 its lock.
select pg_advisory_xact_lock($1::bigint)
