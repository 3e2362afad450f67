-- Keeps a sample unless there is one. ?1 step in seconds, ?2 moment, ?3 the sample as JSON. Primary key.
insert into windlass_sample (step, at, data)
values (?1, ?2, ?3)
on conflict (step, at) do nothing;
