-- Notes what happened to jobs. $1 lane, kind and sequence of each as JSON; $2 the time.
-- A negative kind takes a job off the count of that kind; of that and of kinds over 100 nobody is told.
insert into windlass.event (at, lane, kind, count, seqs)
select
    $2::bigint, e.lane, abs(e.kind) % 100, sum(case when e.kind < 0 then -1 else 1 end),
    case when e.kind in (5, 6, 7, 8, 9) then array_agg(e.seq order by e.place) end
from rows from (
    json_to_recordset($1::text::json) as (lane int, kind smallint, seq bigint)
) with ordinality as e(lane, kind, seq, place)
group by e.lane, e.kind
order by max(e.place)
