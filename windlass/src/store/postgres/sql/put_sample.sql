-- Keeps a sample unless there is one. $1 step in seconds, $2 moment, $3 the sample as JSON. By sample_pkey.
-- Its commit waits for no disk: a crash that loses it leaves a gap of ten seconds in a line.
with quickly as materialized (
    select set_config('synchronous_commit', 'off', true) as set
)
insert into windlass.sample (step, at, data)
select $1::bigint, $2::bigint, $3::text from quickly
on conflict (step, at) do nothing
