-- DELAYED and RETRYING jobs that are due, by lane and kind: they count as SCHEDULED. ?1 now. Index
-- windlass_ready_later; upkeep keeps them few.
select lane, kind, count(*) as due
from windlass_ready
where kind <> 0 and at <= ?1
group by lane, kind;
