-- Jobs that ended in a state before a place, the last first. $1 state, $2 and $3 the place (end, sequence), $4 how many at most.
-- By done_end.
select seq, completed_at as at
from windlass.done
where state = $1::smallint and completed_at <= $2::bigint and (completed_at < $2::bigint or seq < $3::bigint)
order by completed_at desc, seq desc
limit $4::bigint
