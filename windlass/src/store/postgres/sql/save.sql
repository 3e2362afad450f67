-- Keeps checkpoints and progress of attempts whose lease holds, and gives those (rule L2).
-- $1 the time, null for the server's; $2 sequences, sorted; $3 tokens; $4 checkpoints and $5 progress, null to keep;
-- $6 the moment that leases are compared with, null for the time.
-- By leased_pkey, and by job_pkey as a range (see complete).
-- The sum keeps the index of expiries out of it, which looks as good while few leases are held, and later reads all.
with clock as materialized (
    select coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
),
held as materialized (
    select f.seq, f.version, i.token, i.checkpoint, i.progress
    from unnest($2::bigint[], $3::uuid[], $4::bytea[], $5::text[]) as i(seq, token, checkpoint, progress)
    cross join lateral (
        select l.seq, l.version
        from windlass.leased l
        where l.seq = i.seq and l.token = i.token
            and l.expires_at + 0 > coalesce($6::bigint, (select now from clock))
            and (l.deadline is null or l.deadline > (select now from clock))
        for update
    ) f
),
kept as (
    update windlass.job j
    set progress = coalesce(h.progress, j.progress), checkpoint = coalesce(h.checkpoint, j.checkpoint)
    from held h
    where j.seq >= h.seq and j.seq <= h.seq and (h.progress is not null or h.checkpoint is not null)
)
select h.seq, h.token, h.version, (select now from clock) as now from held h
