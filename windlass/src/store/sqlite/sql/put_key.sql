-- Keeps an idempotency key, in place of one that is over or whose job made room. Parameters in table order.
insert or replace into windlass_key (scope, key, job, fingerprint, until, first_at, expires_at, look_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8);
