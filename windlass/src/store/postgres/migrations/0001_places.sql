-- The narrow rows: a job stands in exactly one of these four tables. What columns may hold is not told by checks, which
-- every statement would read anew: `store check` looks.
-- due is the position of a SCHEDULED job, and run_at while that lies ahead. kept: how long it is kept after its end, by terminal
-- state; null where the store's own retention decides.
create table windlass.ready (
    seq bigint primary key,
    lane int not null,
    priority smallint not null,
    state smallint not null,
    slow boolean not null,
    due bigint not null,
    deadline bigint,
    visibility bigint not null,
    lease_max bigint,
    kept bigint[],
    version bigint not null,
    attempt int not null,
    failures int not null,
    lost int not null,
    generation int not null,
    scheduled_at bigint,
    updated_at bigint,
    started_at bigint,
    failed_at bigint,
    failure text
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
-- By seq + 0: an index that ends with the sequence itself looks as good as the primary key for finding a job, while little in
-- it is alive.
create index ready_claim on windlass.ready (lane, priority, due, (seq + 0));
-- Most jobs were due when they were enqueued, and live for the standard seven days from then. Their lifetimes end in the
-- order in which they are due, lane by lane, which ready_claim knows: only other jobs need an index of deadlines, and those on
-- strands, of which there may be many.
create index ready_deadline on windlass.ready (deadline, (seq + 0)) where deadline - due <> 604800000000 or lane < 0;
-- What waits for its moment is counted from its index alone.
create index ready_later on windlass.ready (due) include (lane, state) where state <> 2;

-- strand: where the lease counts in a controlled queue; null in others.
-- Of a token only the part is stored that the jobs of one claim have in common; a token begins with its job's sequence.
create table windlass.leased (
    seq bigint primary key,
    lane int not null,
    priority smallint not null,
    slow boolean not null,
    token uuid not null,
    version bigint not null,
    expires_at bigint not null,
    deadline bigint,
    visibility bigint not null,
    lease_max bigint,
    kept bigint[],
    attempt int not null,
    failures int not null,
    lost int not null,
    generation int not null,
    scheduled_at bigint not null,
    started_at bigint not null,
    failed_at bigint,
    failure text,
    worker text not null,
    cancel text,
    strand int
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index leased_expiry on windlass.leased (expires_at);

create table windlass.pending (
    seq bigint primary key,
    lane int not null,
    slow boolean not null,
    waits_all int not null,
    waits_any boolean not null,
    run_at bigint,
    deadline bigint,
    version bigint not null,
    attempt int not null,
    failures int not null,
    lost int not null,
    generation int not null,
    scheduled_at bigint,
    updated_at bigint not null,
    started_at bigint,
    failed_at bigint,
    failure text,
    check (waits_all > 0 or waits_any)
);
create index pending_deadline on windlass.pending (deadline, (seq + 0)) where deadline is not null;

create table windlass.done (
    seq bigint primary key,
    lane int not null,
    state smallint not null,
    completed_at bigint not null,
    version bigint not null,
    attempt int not null,
    failures int not null,
    lost int not null,
    generation int not null,
    scheduled_at bigint,
    started_at bigint,
    failed_at bigint,
    token uuid,
    worker text,
    failure text,
    reason text,
    fingerprint bigint,
    result_type text,
    result bytea,
    prune_at bigint
);
-- prune_at: from when on it may be removed, where that was said for it. Such jobs have indexes of their own: the store's own
-- retention would else walk over all that are kept longer.
create index done_end on windlass.done (state, completed_at) where prune_at is null;
create index done_end_own on windlass.done (state, completed_at) where prune_at is not null;
create index done_prune on windlass.done (prune_at) where prune_at is not null;
create index done_dead on windlass.done (state, seq) where state <> 5;
-- fingerprint is the fault of a FAILED or DEAD_LETTER job. Groups are counted from this index as far as its pages are settled.
create index done_fault on windlass.done (fingerprint, seq, lane, completed_at) where fingerprint is not null;
