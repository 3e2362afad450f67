-- Whether a claim of a controlled queue could change anything beside the door, and when time alone will open a strand.
-- $1 the time, null for the server's; $2 queue; $3 lanes that are wanted. By note_pkey, strand_next and strand_later.
with clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
)
select
    exists (select from windlass.note where queue = $2::int)
    or exists (
        select from unnest($3::int[]) as w(lane)
        cross join lateral (select from windlass.strand s where s.lane = w.lane and s.look = 0 limit 1) s)
    or exists (select from windlass.strand where queue = $2::int and look > 0 and look <= (select now from clock))
        as claimable,
    (
        select min(look) from windlass.strand
        where queue = $2::int and look > 0 and look > (select now from clock) and look < 4000000000000000000) as next,
    (select now from clock) as now
