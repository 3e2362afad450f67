-- Keeps an idempotency key, in place of one that has expired. Parameters in table order.
insert or replace into windlass_key (scope, key, job, type, digest, expires_at)
values (?1, ?2, ?3, ?4, ?5, ?6);
