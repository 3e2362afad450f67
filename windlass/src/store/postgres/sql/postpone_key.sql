-- Lets upkeep look at idempotency keys later. $1 scopes, $2 keys, $3 jobs that they still stand for, $4 when. By key_pkey.
update windlass.key k
set look_at = i.look_at
from unnest($1::text[], $2::text[], $3::uuid[], $4::bigint[]) as i(scope, key, job, look_at)
where k.scope = i.scope and k.key = i.key and k.job = i.job
