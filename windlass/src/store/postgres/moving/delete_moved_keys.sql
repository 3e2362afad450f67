-- Removes idempotency keys. $1 scopes, $2 keys. By key_pkey.
delete from windlass.key k using unnest($1::text[], $2::text[]) as i(scope, key) where k.scope = i.scope and k.key = i.key
