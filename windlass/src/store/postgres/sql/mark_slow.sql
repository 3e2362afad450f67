-- Marks unfinished jobs whose end has consequences, so that only the slow path writes it. $1 sequences, whose rows are held.
-- A row of ready is never updated but put in anew: a claim finds rows by their place in the table, and would miss one that
-- moved. By ready_pkey, leased_pkey and pending_pkey.
with l as (update windlass.leased set slow = true where seq = any($1::bigint[]) and not slow),
p as (update windlass.pending set slow = true where seq = any($1::bigint[]) and not slow),
r as (delete from windlass.ready where seq = any($1::bigint[]) and not slow returning *)
insert into windlass.ready
    (seq, lane, priority, state, slow, due, deadline, visibility, lease_max, kept, version, attempt, failures, lost, generation,
    scheduled_at, updated_at, started_at, failed_at, failure)
select
    seq, lane, priority, state, true, due, deadline, visibility, lease_max, kept, version, attempt, failures, lost, generation,
    scheduled_at, updated_at, started_at, failed_at, failure
from r
