-- Unfinished jobs whose lifetime is over, in that order, but for those that somebody holds. $1 the time, $2 how many,
-- $3 the moment before which no lease can have expired.
-- By ready_deadline, waiting_deadline and leased_expiry: a lease never outlives the lifetime.
with r as (
    select seq, deadline from windlass.ready
    where deadline <= $1::bigint
    order by deadline limit $2::bigint
    for update skip locked
),
w as (
    select seq, deadline from windlass.waiting
    where deadline <= $1::bigint
    order by deadline limit $2::bigint
),
l as (
    select seq, deadline from windlass.leased
    where expires_at <= $1::bigint and expires_at >= $3::bigint and deadline <= $1::bigint
    order by expires_at limit $2::bigint
    for update skip locked
)
select d.seq
from (select * from r union all select * from w union all select * from l) d
order by d.deadline, d.seq
limit $2::bigint
