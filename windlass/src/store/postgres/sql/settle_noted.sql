-- As settle, for leases that were claimed through gates: a note tells the next claim how many fewer run (rule K3).
-- The parameters are the same.
with clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
),
gone as (
    delete from windlass.leased l
    using unnest($2::bigint[], $3::uuid[], $4::bytea[], $5::int[]) as i(seq, token, result, kind)
    where l.seq >= i.seq and l.seq <= i.seq and l.token = i.token and l.expires_at + 0 > (select now from clock)
        and not l.slow
    returning l.*, i.result,
        ($6::smallint[])[i.kind] as outcome, ($7::smallint[])[i.kind] as next, ($8::bigint[])[i.kind] as delay,
        ($9::int[])[i.kind] as counted, ($10::text[])[i.kind] as said, ($11::text[])[i.kind] as reason,
        ($12::text[])[i.kind] as result_type, ($13::bigint[])[i.kind] as fault
),
ended as (
    insert into windlass.done
        (seq, lane, state, completed_at, version, attempt, failures, lost, generation, scheduled_at, started_at, failed_at,
        token, worker, failure, reason, fingerprint, result_type, result, prune_at)
    select
        g.seq, g.lane, g.next, c.now, g.version, g.attempt, g.failures + g.counted, g.lost, g.generation,
        g.scheduled_at, g.started_at,
        case when g.next = 5 then null when g.said is null then g.failed_at else c.now end,
        g.token, g.worker, case when g.next = 5 then null else coalesce(g.said, g.failure) end,
        g.reason, g.fault, g.result_type, g.result, c.now + g.kept[g.next - 4]
    from gone g, clock c
    where g.next >= 5
),
back as (
    insert into windlass.ready
        (seq, lane, priority, state, slow, due, deadline, visibility, lease_max, kept, version, attempt, failures, lost, generation,
        scheduled_at, updated_at, started_at, failed_at, failure)
    select
        g.seq, g.lane, g.priority, g.next, g.slow, c.now + coalesce(g.delay, 0), g.deadline, g.visibility,
        g.lease_max, g.kept, g.version, g.attempt, g.failures + g.counted, g.lost, g.generation,
        case when g.next = 2 then null else g.scheduled_at end, case when g.next = 2 then null else c.now end,
        g.started_at, case when g.said is null then g.failed_at else c.now end, coalesce(g.said, g.failure)
    from gone g, clock c
    where g.next < 5
),
closed as (
    insert into windlass.attempt
        (seq, version, token, number, generation, outcome, started_at, ended_at, worker, failure)
    select
        g.seq, g.version, g.token, g.attempt, g.generation, g.outcome, g.started_at, c.now, g.worker, g.said
    from gone g, clock c
    where g.outcome <> 0
),
forgotten as (
    delete from windlass.attempt a using gone g
    where g.version > 100 and a.seq >= g.seq and a.seq <= g.seq and a.version <= g.version - 100
),
unlogged as (
    delete from windlass.log a using gone g
    where g.version > 100 and a.seq >= g.seq and a.seq <= g.seq and a.version <= g.version - 100
),
told as (
    insert into windlass.event (at, lane, kind, count, seqs)
    select c.now, g.lane, case when g.next >= 5 then g.next else 24::smallint end, count(*),
        case when g.next >= 5 then array_agg(g.seq) end
    from gone g, clock c
    where g.next >= 5 or g.next = 4 and g.outcome = 1
    group by c.now, g.lane, g.next
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
select g.seq, g.next, g.lane from gone g
