-- Lets a new job wait, which was never claimed. ?1 lane, ?2 priority, ?3 at, ?4 seq, ?5 kind, ?6 deadline, ?7 flags, ?8 when
-- its wait began, if it is not claimable at once.
insert into windlass_ready (lane, priority, at, seq, kind, moved, deadline, flags, attempt, failures, lost, generation, version, position, updated_at)
values (?1, ?2, ?3, ?4, ?5, 0, ?6, ?7, 0, 0, 0, 0, 0, ?8, ?8);
