-- Lets upkeep look at idempotency keys later, or once their time is over. $1 scopes, $2 keys, $3 jobs that they still stand
-- for, $4 when. By key_pkey, then by place in the table.
update windlass.key
set look_at = least(expires_at, $4::bigint)
where ctid = any(array(
    select f.spot
    from unnest($1::text[], $2::text[], $3::uuid[]) as i(scope, key, job)
    cross join lateral (
        select ctid as spot from windlass.key where scope = i.scope and key = i.key and job = i.job for update
    ) f))
