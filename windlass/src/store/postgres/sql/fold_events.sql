-- Folds old events into sums, which are no longer read as events, and gives the last that it folded. $1 how many of the newest numbers
-- stay apart (to count rows instead would be to walk over them); $2 how many to fold; $3 the number before which there are
-- none. By event_pkey.
with old as (
    delete from windlass.event
    where event = any(array(
        select e.event from windlass.event e
        where e.event >= $3::bigint
            and e.event <= (select max(b.event) from windlass.event b) - $1::bigint
        order by e.event
        limit $2::bigint))
    returning event, lane, kind, count, at
),
summed as (
    insert into windlass.event (at, lane, kind, count)
    select max(at), lane, kind, sum(count)
    from old
    group by lane, kind
)
select coalesce(max(event), 0) as folded_to from old
