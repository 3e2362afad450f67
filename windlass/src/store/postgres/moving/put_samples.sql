-- Keeps samples, unless they are there. $1 steps in seconds, $2 moments, $3 the samples as JSON. By sample_pkey.
insert into windlass.sample (step, at, data)
select i.step, i.at, i.data from unnest($1::bigint[], $2::bigint[], $3::text[]) as i(step, at, data)
on conflict (step, at) do nothing
