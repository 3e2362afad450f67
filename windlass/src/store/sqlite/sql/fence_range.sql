-- RUNNING jobs that complete_range.sql would end, the lane that each runs in, and its own; its parameters ?1 to ?4. Primary keys.
select seq, lane, iif(flags = 0, lane, coalesce((select j.lane from windlass_job as j where j.seq = windlass_leased.seq), lane)) as own
from windlass_leased
where seq between ?1 and ?2 and token = substr(?3, 16 * (seq - ?1) + 1, 16) and expires_at > ?4 and flags & ~4 = 0 and version <= 100;
