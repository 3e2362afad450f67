-- Most jobs were due when they were enqueued, and live for the standard seven days from then. Their lifetimes end in the
-- order in which they are due, lane by lane, which ready_claim knows: only other jobs need an index of deadlines.
drop index windlass.ready_deadline;
create index ready_deadline on windlass.ready (deadline) where deadline - due <> 604800000000;
