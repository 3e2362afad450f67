-- Forgets samples of a step. $1 the time, null for the server's; $2 step in seconds, $3 how long they are kept. By sample_pkey.
-- Its commit waits for no disk: what comes back after a crash is forgotten again.
with quickly as materialized (
    select set_config('synchronous_commit', 'off', true) as set
),
clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now from quickly
)
delete from windlass.sample
where step = $2::bigint and at < (select now from clock) - $3::bigint
