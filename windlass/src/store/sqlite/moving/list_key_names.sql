-- Idempotency keys after a place. ?1 scope, ?2 key, ?3 how many at most. Primary key.
select scope, key from windlass_key where (scope, key) > (?1, ?2) order by scope, key limit ?3;
