-- Idempotency keys that upkeep looks at. $1 the time, $2 how many. By key_look.
select scope, key, job, until, expires_at
from windlass.key
where look_at <= $1::bigint
order by look_at
limit $2::bigint
