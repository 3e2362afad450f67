-- Notes what happened to jobs. $1 for each its lane, kind, count (1, or -1 for a job that left what the kind counts), and its
-- sequence if readers of events are to be told of it, as JSON; $2 the time.
insert into windlass.event (at, lane, kind, count, seqs)
select
    $2::bigint, e.lane, e.kind, sum(e.count), array_agg(e.seq order by e.place) filter (where e.seq is not null)
from rows from (
    json_to_recordset($1::text::json) as (lane int, kind smallint, count int, seq bigint)
) with ordinality as e(lane, kind, count, seq, place)
group by e.lane, e.kind, e.seq is null
order by max(e.place)
