-- The jobs in a gate of a controlled queue that started first. $1 queue; $2 lane, null for the gate of the queue or of a key;
-- $3 key, null for the other gates; $4 how many. Reads the whole of leased: for one explanation.
select j.id
from (
    select l.seq, l.started_at
    from windlass.leased l
    where l.lane = any(array(
            select a.lane from windlass.lane a where a.queue = $1::int and ($2::int is null or a.lane = $2::int)))
        and ($3::text is null or l.strand = any(array(
            select s.strand from windlass.strand s where s.queue = $1::int and s.key = $3::text)))
    order by l.started_at, l.seq
    limit $4::bigint
) f
cross join lateral (select id from windlass.job where seq = f.seq offset 0) j
order by f.started_at, f.seq
