-- What is kept of idempotency keys whose time is not over. $1 the time; $2 scopes; $3 keys; $4 types; $5 content types;
-- $6 payloads. Gives the place, the job and whether it is the same. By key_pkey.
select i.place, k.job, k.until, k.first_at, k.fingerprint = sha256(
    convert_to(i.job_type || ' ' || coalesce(i.content_type, ''), 'UTF8') || '\x00'::bytea || i.payload) as matches
from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[]) with ordinality
    as i(scope, key, job_type, content_type, payload, place)
cross join lateral (select * from windlass.key where scope = i.scope and key = i.key offset 0) k
where k.expires_at is null or k.expires_at > $1::bigint
