-- DELAYED and RETRYING jobs that are due, by lane and kind: they count as SCHEDULED. ?1 now. Index
-- windlass_ready_later; upkeep keeps them few.
select w.lane, l.queue, l.type, w.kind, count(*) as due
from windlass_ready as w cross join windlass_lane as l on l.lane = w.lane
where w.kind <> 0 and w.at <= ?1
group by w.lane, w.kind;
