-- Whether an attempt was closed so. $1 sequence, $2 token, $3 outcome. By attempt_pkey.
select 1 from windlass.attempt where seq = $1::bigint and token = $2::uuid and outcome = $3::smallint limit 1
