-- Forgets idempotency keys that are no longer in force. $1 the time, $2 how many. By key_end.
delete from windlass.key
where ctid = any(array(
    select ctid from windlass.key where expires_at <= $1::bigint order by expires_at limit $2::bigint for update))
