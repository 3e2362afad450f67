-- Leases the claimable jobs of a lane and priority between two places. ?1 lane, ?2 priority, ?3 and ?4 the first place (at,
-- seq), ?5 and ?6 the last, ?7 now, ?8 expires_at, ?9 tokens: 16 bytes for each number from ?4 on, ?10 worker, ?11 lease_max, ?12 the
-- lane in which they run, ?13 their further flag. Primary key.
insert into windlass_leased (seq, lane, priority, deadline, flags, attempt, failures, lost, generation, version, position, scheduled_at, started_at, expires_at, lease_max, token, worker)
select seq, ?12, priority, deadline, flags | ?13, attempt + 1, failures, lost, generation, version + 1, at, at, ?7, ?8, ?11, substr(?9, 16 * (seq - ?4) + 1, 16), ?10
from windlass_ready
where lane = ?1 and priority = ?2 and (at, seq) >= (?3, ?4) and (at, seq) <= (?5, ?6) and (deadline is null or deadline > ?7);
