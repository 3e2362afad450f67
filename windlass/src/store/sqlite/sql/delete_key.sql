-- Forgets an idempotency key. ?1 scope, ?2 key. Primary key.
delete from windlass_key
where scope = ?1 and key = ?2;
