-- The newest dead jobs of faults, newest first, a row for each fault. $1 the time, null for the server's; $2 fingerprints; $3 how
-- many jobs of each at most. By done_fault.
select f.fingerprint, e.seqs, e.lanes, e.ats,
    coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now
from unnest($2::bigint[]) as f(fingerprint)
cross join lateral (
    select array_agg(d.seq) as seqs, array_agg(d.lane) as lanes, array_agg(d.completed_at) as ats
    from (
        select seq, lane, completed_at
        from windlass.done
        where fingerprint = f.fingerprint and fingerprint is not null
        order by seq desc
        limit $3::bigint
    ) d
) e
