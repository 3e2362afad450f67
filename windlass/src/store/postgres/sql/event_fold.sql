-- Folds old events into sums, which nobody reads as events. $1 how many of the newest stay apart, $2 how many to fold.
-- By event_pkey.
with old as (
    delete from windlass.event
    where event in (
        select e.event from windlass.event e
        where e.event < (select b.event from windlass.event b order by b.event desc offset $1::bigint limit 1)
        order by e.event
        limit $2::bigint
    )
    returning lane, kind, count, at
)
insert into windlass.event (at, lane, kind, count)
select max(at), lane, kind, sum(count)
from old
group by lane, kind
