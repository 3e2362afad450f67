-- Lets a job wait. Parameters in table order.
insert into windlass_ready (lane, priority, at, seq, kind, moved, deadline, flags, attempt, failures, lost, generation, version, position, scheduled_at, started_at, updated_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17);
