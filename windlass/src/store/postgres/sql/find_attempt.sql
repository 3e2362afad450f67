-- The tokens of attempts that were closed so. $1 sequence, $2 outcome. By attempt_pkey.
select token from windlass.attempt where seq = $1::bigint and outcome = $2::smallint
