-- DELAYED and RETRYING jobs that are due. ?1 now, ?2 how many at most. Index windlass_ready_later.
select lane, priority, at, seq, kind
from windlass_ready
where kind <> 0 and at <= ?1
order by at
limit ?2;
