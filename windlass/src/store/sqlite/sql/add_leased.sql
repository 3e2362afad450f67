-- Leases a job. Parameters in table order; cancel is null.
insert into windlass_leased (seq, lane, priority, deadline, flags, attempt, failures, lost, generation, version, position, scheduled_at, started_at, expires_at, lease_max, token, worker)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17);
