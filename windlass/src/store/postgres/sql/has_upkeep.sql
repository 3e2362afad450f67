-- Whether upkeep has anything to do, and the time. $1 the time, null for the server's; $2 how long a worker lives after
-- its last report; $3 states that are pruned and $4 how long each is kept; $5 how many events are kept apart; $6 for each
-- terminal state from 5 the moment before which no job is left that ended so; $7 the number before which there are no
-- events; $8 whether to look lane by lane for the standard lifetime; $9 the moment before which no lease expires,
-- and $10 the one before which no retention of a job's own ends.
-- By ready_deadline, ready_claim, pending_deadline, leased_expiry, done_end, done_prune, key_look and event_pkey.
with clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
)
select
    exists (
        select from windlass.leased
        where expires_at <= (select now from clock) and expires_at >= $9::bigint)
    or exists (
        select from windlass.ready
        where deadline <= (select now from clock) and (deadline - due <> 604800000000 or lane < 0))
    or $8::boolean and exists (
        select from windlass.lane l
        cross join generate_series(0, 4) as p(priority)
        cross join lateral (
            select from windlass.ready r
            where r.lane = l.lane and r.priority = p.priority
                and r.due <= (select now from clock) - 604800000000 and r.deadline - r.due = 604800000000
            order by r.due
            limit 1) r)
    or exists (select from windlass.pending where deadline <= (select now from clock))
    or exists (
        select from windlass.schedule
        where not paused and (next_at is null or next_at <= (select now from clock)))
    or exists (
        select from unnest($3::smallint[], $4::bigint[]) as k(state, kept)
        cross join lateral (
            select from windlass.done d
            where d.state = k.state and d.prune_at is null and d.completed_at <= (select now from clock) - k.kept
                and d.completed_at >= ($6::bigint[])[k.state - 4]
            limit 1) d)
    or exists (
        select from windlass.done where prune_at <= (select now from clock) and prune_at >= $10::bigint)
    or exists (select from windlass.key where look_at <= (select now from clock))
    or exists (select from windlass.worker where seen_at < (select now from clock) - $2::bigint)
    or coalesce(
        (select max(event) from windlass.event) - (select min(event) from windlass.event where event >= $7::bigint)
            > $5::bigint * 2,
        false) as due,
    (select now from clock) as now
