-- As complete, for leases that were claimed through gates: a note tells the next claim how many fewer run (rule K3).
-- $1 the time, null for the server's; $2 sequences, sorted; $3 tokens; $4 results and $5 their content types, or neither.
-- By leased_pkey, as a range: by equality a plan may walk through the whole index, which looks as good while few leases are
-- held. The sum keeps the index of expiries out of it for the same reason.
with clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
),
gone as (
    delete from windlass.leased l
    using unnest($2::bigint[], $3::uuid[], $4::bytea[], $5::text[]) as i(seq, token, result, result_type)
    where l.seq >= i.seq and l.seq <= i.seq and l.token = i.token and l.expires_at + 0 > (select now from clock)
        and not l.slow
    returning l.seq, l.lane, l.strand, l.version, l.attempt, l.failures, l.lost, l.generation, l.scheduled_at, l.started_at,
        l.token, l.worker, l.kept, i.result, i.result_type
),
ended as (
    insert into windlass.done
        (seq, lane, state, completed_at, version, attempt, failures, lost, generation, scheduled_at, started_at, token, worker,
        result_type, result, prune_at)
    select
        g.seq, g.lane, 5, (select now from clock), g.version, g.attempt, g.failures, g.lost, g.generation, g.scheduled_at,
        g.started_at, g.token, g.worker, g.result_type, g.result, (select now from clock) + g.kept[1]
    from gone g
),
noted as (
    insert into windlass.note (queue, strands, counts)
    select l.queue, c.strands, c.counts
    from (
        select s.lane, array_agg(s.strand) as strands, array_agg(s.count) as counts
        from (
            select g.lane, g.strand, count(*)::int as count
            from gone g
            where g.strand is not null
            group by g.lane, g.strand
        ) s
        group by s.lane
    ) c
    cross join lateral (select queue from windlass.lane where lane = c.lane offset 0) l
)
insert into windlass.event (at, lane, kind, count, seqs)
select (select now from clock), g.lane, 5, count(*), array_agg(g.seq)
from gone g
group by g.lane
returning lane, seqs
