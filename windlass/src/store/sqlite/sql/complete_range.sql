-- Ends RUNNING jobs as completed whose leases hold and which ask for nothing else: no callback, no notes, no attempts to
-- forget. ?1 lowest seq, ?2 highest, ?3 tokens: 16 bytes for each number from ?1 on, zeros for those that are not meant, ?4
-- now, ?5 the tick of the lowest. State 5 is COMPLETED, outcome 0 the same. Flag 4: it ran in a strand, which it leaves for its own
-- lane. Primary keys.
insert into windlass_done (seq, lane, state, ended, priority, deadline, flags, attempt, failures, lost, generation, version, position, scheduled_at, started_at, updated_at, outcome, token, worker)
select seq, iif(flags = 0, lane, coalesce((select j.lane from windlass_job as j where j.seq = windlass_leased.seq), lane)), 5, ?5 + seq - ?1, priority, deadline, 0, attempt, failures, lost, generation, version, position, scheduled_at, started_at, ?4, 0, token, worker
from windlass_leased
where seq between ?1 and ?2 and token = substr(?3, 16 * (seq - ?1) + 1, 16) and expires_at > ?4 and flags & ~4 = 0 and version <= 100;
