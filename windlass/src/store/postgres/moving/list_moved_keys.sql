-- Idempotency keys, whole. $1 scopes, $2 keys. By key_pkey.
select k.scope, k.key, k.job, k.until, k.first_at, k.expires_at, k.look_at, k.fingerprint
from unnest($1::text[], $2::text[]) as i(scope, key)
join windlass.key k on k.scope = i.scope and k.key = i.key
