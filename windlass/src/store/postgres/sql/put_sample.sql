-- Keeps a sample unless there is one. $1 step in seconds, $2 moment, $3 the sample as JSON. By sample_pkey.
insert into windlass.sample (step, at, data)
values ($1::bigint, $2::bigint, $3::text)
on conflict (step, at) do nothing
