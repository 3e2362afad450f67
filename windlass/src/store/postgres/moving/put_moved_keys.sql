-- Keeps idempotency keys. $1 scopes, $2 keys, $3 jobs, $4 until what, $5 first submissions, $6 until when, $7 when upkeep looks,
-- $8 fingerprints. By key_pkey.
insert into windlass.key (scope, key, job, until, first_at, expires_at, look_at, fingerprint)
select i.scope, i.key, i.job, i.until, i.first_at, i.expires_at, i.look_at, i.fingerprint
from unnest(
    $1::text[], $2::text[], $3::uuid[], $4::smallint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bytea[]
) as i(scope, key, job, until, first_at, expires_at, look_at, fingerprint)
on conflict (scope, key) do update
set job = excluded.job, until = excluded.until, first_at = excluded.first_at, expires_at = excluded.expires_at,
    look_at = excluded.look_at, fingerprint = excluded.fingerprint
