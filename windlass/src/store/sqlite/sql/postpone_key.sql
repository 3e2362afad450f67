-- Lets upkeep look at an idempotency key later. ?1 scope, ?2 key, ?3 when. Primary key.
update windlass_key
set look_at = ?3
where scope = ?1 and key = ?2;
