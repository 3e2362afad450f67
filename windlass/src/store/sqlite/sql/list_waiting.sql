-- DELAYED and RETRYING jobs that are not due, the soonest first. ?1 now, ?2 to ?5 the place (at, lane, priority, seq) after which, ?6 how
-- many at most. Index windlass_ready_later, from one bound: of two, SQLite takes the first, and each page would walk over those before it.
select at, lane, priority, seq, kind
from windlass_ready
where kind <> 0 and at >= max(?1 + 1, ?2) and (at, lane, priority, seq) > (?2, ?3, ?4, ?5)
order by at, lane, priority, seq
limit ?6;
