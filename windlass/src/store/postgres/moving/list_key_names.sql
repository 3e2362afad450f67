-- Idempotency keys after a place. $1 scope, $2 key, $3 how many at most. By key_pkey.
select scope, key from windlass.key where (scope, key) > ($1::text, $2::text) order by scope, key limit $3::bigint
