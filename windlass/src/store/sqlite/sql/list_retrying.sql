-- The waiting jobs that are due soonest, with the failure of those that are tried again. ?1 now, ?2 how many at most.
-- Index windlass_ready_later; primary key of windlass_note.
select r.seq, r.lane, r.kind, case when r.kind = 2 then (select n.failure from windlass_note as n where n.seq = r.seq) end as failure
from windlass_ready as r
where r.kind <> 0 and r.at > ?1
order by r.at
limit ?2;
