-- Forgets idempotency keys that still stand for these jobs. $1 scopes, $2 keys, $3 jobs. By key_pkey.
delete from windlass.key k
using unnest($1::text[], $2::text[], $3::uuid[]) as i(scope, key, job)
where k.scope = i.scope and k.key = i.key and k.job = i.job
