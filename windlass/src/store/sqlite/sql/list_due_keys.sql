-- Idempotency keys that upkeep looks at. ?1 now, ?2 how many at most. Index windlass_key_look.
select scope, key, job, until, expires_at
from windlass_key
where look_at <= ?1
order by look_at
limit ?2;
