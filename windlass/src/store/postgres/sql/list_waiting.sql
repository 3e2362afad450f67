-- DELAYED and RETRYING jobs that are not due, the soonest first. $1 the time, $2 and $3 the place (due, sequence) after which, $4 how
-- many at most. By ready_later.
select seq, due as at, lane, state
from windlass.ready
where state <> 2 and due > $1::bigint and due >= $2::bigint and (due > $2::bigint or seq > $3::bigint)
order by due, seq
limit $4::bigint
