-- What an idempotency key stands for. ?1 scope, ?2 key. Primary key.
select job, type, digest, expires_at
from windlass_key
where scope = ?1 and key = ?2;
