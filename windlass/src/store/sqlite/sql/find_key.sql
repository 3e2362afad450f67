-- What is kept of an idempotency key. ?1 scope, ?2 key. Primary key.
select job, fingerprint, until, first_at, expires_at
from windlass_key
where scope = ?1 and key = ?2;
