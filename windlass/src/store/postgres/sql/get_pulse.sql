-- The pulse, and the time by its skew. $1 the time, null or a correction for the server's. By pulse_pkey.
select
    p.at, p.away_from, p.grace_until, p.skew,
    case when $1::bigint > 1000000000000000 then $1::bigint
        else (extract(epoch from clock_timestamp()) * 1000000)::bigint + p.skew end as now
from windlass.pulse p
where p.only_row
