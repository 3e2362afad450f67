-- Acts, newest first. $1 before this one, $2 how many. By act_pkey.
select act, record from windlass.act where act < $1::bigint order by act desc limit $2::bigint
