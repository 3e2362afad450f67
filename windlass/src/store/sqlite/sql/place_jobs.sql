-- Lets new jobs wait that say nothing special and can be claimed at once. ?1 lowest seq, ?2 highest, ?3 their lifetime, if it
-- ends. Primary key.
insert into windlass_ready (lane, priority, at, seq, kind, moved, deadline, flags, attempt, failures, lost, generation, version)
select lane, priority, created_at, seq, 0, 0, created_at + ?3, 0, 0, 0, 0, 0, 0
from windlass_job
where seq between ?1 and ?2;
