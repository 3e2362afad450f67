-- The other places where a job can stand, and what is kept beside it.

create table windlass_pending (
    seq integer primary key,
    lane integer not null,
    priority integer not null,
    deadline integer,
    flags integer not null,
    attempt integer not null,
    failures integer not null,
    lost integer not null,
    generation integer not null,
    version integer not null,
    position integer not null,
    scheduled_at integer,
    started_at integer,
    updated_at integer not null,
    run_at integer,
    waits_all integer not null,
    waits_any integer not null
);
-- `lease_max`: how long the attempt may hold the job in all, which its execution timeout says; null for the standard one.
create table windlass_leased (
    seq integer primary key,
    lane integer not null,
    priority integer not null,
    deadline integer,
    flags integer not null,
    attempt integer not null,
    failures integer not null,
    lost integer not null,
    generation integer not null,
    version integer not null,
    position integer not null,
    scheduled_at integer,
    started_at integer not null,
    expires_at integer not null,
    lease_max integer,
    token blob not null,
    worker text not null,
    cancel text
);
create index windlass_leased_expiry on windlass_leased (expires_at);
create index windlass_leased_cancel on windlass_leased (seq) where cancel is not null;
-- `ended` is the tick of the end. `fingerprint` is the fault of a FAILED or DEAD_LETTER job. `outcome`, `token` and `worker` are those of the attempt that ended the job, if one did.
create table windlass_done (
    seq integer primary key,
    lane integer not null,
    state integer not null check (state between 5 and 8),
    ended integer not null,
    priority integer not null,
    deadline integer,
    flags integer not null,
    attempt integer not null,
    failures integer not null,
    lost integer not null,
    generation integer not null,
    version integer not null,
    position integer not null,
    scheduled_at integer,
    started_at integer,
    updated_at integer not null,
    outcome integer,
    token blob,
    worker text,
    reason text,
    fingerprint integer,
    result_type text,
    result blob,
    prune_at integer
);
-- `prune_at`: from when on it may be removed, where that was said for it. Such jobs have indexes of their own: the store's own
-- retention would else walk over all that are kept longer.
create index windlass_done_ended on windlass_done (state, ended) where prune_at is null;
create index windlass_done_ended_own on windlass_done (state, ended) where prune_at is not null;
create index windlass_done_prune on windlass_done (prune_at) where prune_at is not null;
create index windlass_done_bad on windlass_done (state, seq) where state <> 5;
-- Groups of dead jobs are counted from this index alone.
create index windlass_done_fault on windlass_done (fingerprint, seq, lane, updated_at) where fingerprint is not null;

-- The end of each lifetime that is not the standard one. A row may outlast its job's end: upkeep drops it when its time comes.
create table windlass_lifetime (deadline integer not null, seq integer not null, primary key (deadline, seq)) without rowid;
