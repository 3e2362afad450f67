-- One row for each kind of thing that one statement did in one lane: what happened, and the numbers that add up.
-- kind is a terminal state, 9 for accepted, 10 for pruned, 0 for a change in the number of PENDING jobs.
-- Readers go by (xid, event), since transactions do not commit in the order in which they draw numbers.
create table windlass.event (
    event bigint generated always as identity primary key,
    xid xid8 not null default pg_current_xact_id(),
    at bigint not null,
    lane int not null,
    kind smallint not null,
    count bigint not null,
    seqs bigint[]
);
create index event_xid on windlass.event (xid, event) where seqs is not null;

-- A job as everybody sees it, wherever its narrow row is.
create view windlass.record as
select
    j.seq, j.id, j.lane, j.priority, j.inherited, j.depth, j.created_at, j.deadline, j.visibility,
    j.content_type, j.payload, j.options, j.depends_on, j.workflow, j.schedule, j.slot, j.spawned_by,
    j.progress, j.checkpoint,
    case
        when r.seq is not null then r.state
        when l.id is not null then 3::smallint
        when w.seq is not null then 0::smallint
        else d.state
    end as state,
    coalesce(r.slow, l.slow, w.slow, false) as slow,
    coalesce(r.version, l.version, w.version, d.version) as version,
    coalesce(r.attempt, l.attempt, w.attempt, d.attempt) as attempt,
    coalesce(r.failures, l.failures, w.failures, d.failures) as failures,
    coalesce(r.lost, l.lost, w.lost, d.lost) as lost,
    coalesce(r.generation, l.generation, w.generation, d.generation) as generation,
    coalesce(r.scheduled_at, l.scheduled_at, w.scheduled_at, d.scheduled_at) as scheduled_at,
    coalesce(r.updated_at, w.updated_at) as updated_at,
    coalesce(r.started_at, l.started_at, w.started_at, d.started_at) as started_at,
    coalesce(r.failed_at, l.failed_at, w.failed_at, d.failed_at) as failed_at,
    coalesce(r.failure, l.failure, w.failure, d.failure) as failure,
    r.due, w.run_at, w.waits_all, w.waits_any,
    coalesce(l.token, d.token) as token, coalesce(l.worker, d.worker) as worker, l.expires_at, l.cancel,
    d.completed_at, d.reason, d.result_type, d.result
from windlass.job j
left join windlass.ready r on r.seq = j.seq
left join windlass.leased l on l.id = j.id
left join windlass.waiting w on w.seq = j.seq
left join windlass.done d on d.seq = j.seq;
