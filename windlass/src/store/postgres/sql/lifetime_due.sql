-- Unfinished jobs whose lifetime is over, in that order. $1 the time, $2 how many.
-- By ready_deadline, waiting_deadline and leased_expiry: a lease never outlives the lifetime.
select d.seq
from (
    (select seq, deadline from windlass.ready where deadline <= $1::bigint order by deadline limit $2::bigint)
    union all
    (select seq, deadline from windlass.waiting where deadline <= $1::bigint order by deadline limit $2::bigint)
    union all
    (select seq, deadline from windlass.leased
     where expires_at <= $1::bigint and deadline <= $1::bigint order by deadline limit $2::bigint)
) d
order by d.deadline, d.seq
limit $2::bigint
