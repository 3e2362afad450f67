-- Puts a schedule. $1 name, $2 next_at, $3 paused, $4 the record as JSON. By schedule_pkey.
insert into windlass.schedule (name, next_at, paused, record)
values ($1::text, $2::bigint, $3::boolean, $4::text)
on conflict (name) do update set next_at = excluded.next_at, paused = excluded.paused, record = excluded.record
