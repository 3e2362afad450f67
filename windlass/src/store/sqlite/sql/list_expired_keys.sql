-- Idempotency keys whose window is over. ?1 now, ?2 how many at most. Index windlass_key_expiry.
select scope, key
from windlass_key
where expires_at <= ?1
order by expires_at
limit ?2;
