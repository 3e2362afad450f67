-- Takes idempotency keys that are free, whose time is over, or that still stand for the jobs that were looked at.
-- $1 the time; $2 scopes; $3 keys; $4 types; $5 content types; $6 payloads; $7 jobs; $8 until what; $9 first submissions;
-- $10 until when; $11 when upkeep looks; $12 the jobs that were looked at. What is taken is counted. By key_pkey.
insert into windlass.key as k (scope, key, job, until, first_at, expires_at, look_at, fingerprint)
select i.scope, i.key, i.job, i.until, i.first_at, i.expires_at, i.look_at, sha256(
    convert_to(i.job_type || ' ' || coalesce(i.content_type, ''), 'UTF8') || '\x00'::bytea || i.payload)
from unnest(
    $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::uuid[], $8::smallint[], $9::bigint[],
    $10::bigint[], $11::bigint[]
) as i(scope, key, job_type, content_type, payload, job, until, first_at, expires_at, look_at)
order by i.scope, i.key
on conflict (scope, key) do update
set job = excluded.job, until = excluded.until, first_at = excluded.first_at, expires_at = excluded.expires_at,
    look_at = excluded.look_at, fingerprint = excluded.fingerprint
where k.expires_at <= $1::bigint or k.job = any($12::uuid[])
