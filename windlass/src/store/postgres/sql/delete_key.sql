-- Forgets idempotency keys that still stand for these jobs. $1 scopes, $2 keys, $3 jobs. By key_pkey, then by place in the
-- table.
delete from windlass.key
where ctid = any(array(
    select f.spot
    from unnest($1::text[], $2::text[], $3::uuid[]) as i(scope, key, job)
    cross join lateral (
        select ctid as spot from windlass.key where scope = i.scope and key = i.key and job = i.job for update
    ) f))
