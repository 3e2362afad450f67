-- Takes idempotency keys that are free or no longer in force. $1 the time; $2 scopes; $3 keys; $4 types;
-- $5 content types; $6 payloads; $7 jobs; $8 until when. What is taken is counted. By key_pkey.
insert into windlass.key as k (scope, key, job, expires_at, fingerprint)
select i.scope, i.key, i.job, i.expires_at, sha256(
    convert_to(i.job_type || ' ' || coalesce(i.content_type, ''), 'UTF8') || '\x00'::bytea || i.payload)
from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::uuid[], $8::bigint[])
    as i(scope, key, job_type, content_type, payload, job, expires_at)
order by i.scope, i.key
on conflict (scope, key) do update
set job = excluded.job, expires_at = excluded.expires_at, fingerprint = excluded.fingerprint
where k.expires_at <= $1::bigint
