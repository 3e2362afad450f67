-- Lets a waiting job stand in its strand, beside where it stands. ?1 lane, ?2 priority, ?3 at, ?4 seq, ?5 the strand. Flag 4
-- says that it is there. Primary key.
insert into windlass_ready (lane, priority, at, seq, kind, moved, deadline, flags, attempt, failures, lost, generation, version, position, scheduled_at, started_at, updated_at)
select ?5, priority, at, seq, kind, 1, deadline, flags | 4, attempt, failures, lost, generation, version, position, scheduled_at, started_at, updated_at
from windlass_ready
where lane = ?1 and priority = ?2 and at = ?3 and seq = ?4;
