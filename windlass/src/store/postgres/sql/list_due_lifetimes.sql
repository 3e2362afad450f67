-- Unfinished jobs whose lifetime is over, in that order, but for those that another transaction holds. $1 the time, $2 how many,
-- $3 the moment before which no lease can have expired, $4 whether to look lane by lane for the standard lifetime: jobs
-- that were due when they were enqueued, and have it, are not in ready_deadline.
-- By ready_deadline, ready_claim, pending_deadline and leased_expiry: a lease never outlives the lifetime.
with r as (
    select seq, deadline from windlass.ready
    where deadline <= $1::bigint and (deadline - due <> 604800000000 or lane < 0)
    order by deadline, seq + 0 limit $2::bigint
    for update skip locked
),
s as (
    select f.seq, f.deadline
    from windlass.lane l
    cross join generate_series(0, 4) as p(priority)
    cross join lateral (
        select r.seq, r.deadline from windlass.ready r
        where $4::boolean and r.lane = l.lane and r.priority = p.priority
            and r.due <= $1::bigint - 604800000000 and r.deadline - r.due = 604800000000
        order by r.due, r.seq + 0
        limit $2::bigint
        for update of r skip locked
    ) f
    limit $2::bigint
),
w as (
    select seq, deadline from windlass.pending
    where deadline <= $1::bigint
    order by deadline, seq + 0 limit $2::bigint
),
l as (
    select seq, deadline from windlass.leased
    where expires_at <= $1::bigint and expires_at >= $3::bigint and deadline <= $1::bigint
    order by expires_at, seq limit $2::bigint
    for update skip locked
)
select d.seq
from (select * from r union all select * from s union all select * from w union all select * from l) d
order by d.deadline, d.seq
limit $2::bigint
