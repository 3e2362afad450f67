-- The tables of Windlass. A job's state is the table it stands in: `ready` (SCHEDULED, DELAYED, RETRYING), `pending`,
-- `leased` (RUNNING) or `done`. What was submitted is in `job`, written once. All times are microseconds since 1970.

-- One row of numbers. `tick` counts submissions and ends; `latest` is the newest moment that a write was made at.
-- Jobs with the standard lifetime end in the order of `seq`; `outlived` is the newest one whose lifetime is known to be over.
-- `owner` is the command whose own the store is, if it is one's. `closed` says why nothing may be written, while a move fills the
-- store or after it was moved.
create table windlass_store (
    only_row integer primary key check (only_row = 1),
    accepted integer not null,
    pruned integer not null,
    tick integer not null,
    latest integer not null,
    id_key blob not null,
    outlived integer not null default 0,
    owner text,
    closed text
);
-- A queue and a type, with how many jobs of them stand in each state (a DELAYED or RETRYING one that is due included), how many
-- were removed for good, how many left a terminal state again (by removal too), and how many attempts were retried or lost.
create table windlass_lane (
    lane integer primary key,
    queue text not null,
    type text not null,
    key text not null default '',
    pending integer not null default 0,
    delayed integer not null default 0,
    scheduled integer not null default 0,
    running integer not null default 0,
    retrying integer not null default 0,
    completed integer not null default 0,
    failed integer not null default 0,
    dead_letter integer not null default 0,
    cancelled integer not null default 0,
    removed integer not null default 0,
    left_completed integer not null default 0,
    left_failed integer not null default 0,
    left_dead_letter integer not null default 0,
    left_cancelled integer not null default 0,
    retried integer not null default 0,
    lost integer not null default 0,
    counted integer not null default 0,
    touched integer not null default 0,
    look integer,
    level integer not null default 0,
    class integer not null default 0,
    turn integer not null default 0,
    place integer not null default 0,
    next integer not null default 0,
    unique (queue, key, type)
);
-- `control` is the flow control of the queue, as JSON; what is kept of its gates is in `windlass_gate`, and `0001_flow` tells of its lanes.
create table windlass_queue (name text primary key, paused integer not null, control text) without rowid;

-- `seq` is the order of submission; the id leads to it without an index. `first_at` is where it stood first in
-- `ready`, if not at `created_at`. The payload is last: nothing behind it has to be found.
create table windlass_job (
    seq integer primary key,
    id blob not null,
    lane integer not null,
    priority integer not null,
    inherited integer,
    created_at integer not null,
    first_at integer,
    depth integer not null,
    workflow blob,
    schedule text,
    slot integer,
    spawned_by blob,
    depends_on blob,
    options text,
    content_type text,
    payload blob not null
);
create index windlass_job_workflow on windlass_job (workflow, seq) where workflow is not null;
create index windlass_job_schedule on windlass_job (schedule, seq) where schedule is not null;

-- `at` is the job's position or, while it is DELAYED (kind 1) or RETRYING (kind 2), the end of its wait: so a job that
-- falls due is in its place already. `moved`: no longer where it was submitted to.
create table windlass_ready (
    lane integer not null,
    priority integer not null,
    at integer not null,
    seq integer not null,
    kind integer not null,
    moved integer not null,
    deadline integer,
    flags integer not null,
    attempt integer not null,
    failures integer not null,
    lost integer not null,
    generation integer not null,
    version integer not null,
    position integer,
    scheduled_at integer,
    started_at integer,
    updated_at integer,
    primary key (lane, priority, at, seq)
) without rowid;
create index windlass_ready_moved on windlass_ready (seq) where moved = 1;
create index windlass_ready_later on windlass_ready (at) where kind <> 0;
