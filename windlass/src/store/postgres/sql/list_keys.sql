-- Strands of keys of a queue by key, with what waits on each, up to a limit, and the owners of ordered keys. What was noted and
-- not taken in does not run any more. $1 the time, null for the server's; $2 queue; $3 the key after which; $4 the one key that is
-- asked for, null for all; $5 how many keys at most; $6 how many waiting jobs are counted at most.
-- By strand_queue_key_lane_key, ready_claim and note_pkey.
with clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
),
shown as materialized (
    select distinct s.key
    from windlass.strand s
    where s.queue = $2::int and s.key > $3::text and ($4::text is null or s.key = $4::text)
    order by s.key
    limit $5::bigint
),
noted as materialized (
    select u.strand, sum(u.count)::int as count
    from windlass.note n
    cross join lateral unnest(n.strands, n.counts) as u(strand, count)
    where n.queue = $2::int
    group by u.strand
)
select
    s.strand, s.key, s.lane, s.running - coalesce((select n.count from noted n where n.strand = s.strand), 0) as running,
    s.tat, s.turn, s.held_until, s.owner, s.limits, w.waiting, o.id as owner_id, o.state as owner_state,
    (select now from clock) as now
from shown k
cross join lateral (select * from windlass.strand where queue = $2::int and key = k.key offset 0) s
cross join lateral (
    select count(*) as waiting
    from (select from windlass.ready r where r.lane = s.strand limit $6::bigint) r
) w
left join lateral (select r.id, r.state from windlass.record r where r.seq >= s.owner and r.seq <= s.owner) o on true
order by s.key
