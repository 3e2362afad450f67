-- What was noted of changes, oldest first. $1 how many at most. By change_pkey.
select number, kind, seq, scope, key from windlass.change order by number limit $1::bigint
