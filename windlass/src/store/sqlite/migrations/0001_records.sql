-- What few jobs have: failures, progress and checkpoints; attempts that did not end the job; log lines; dependencies.

create table windlass_note (seq integer primary key, failure text, progress text, checkpoint blob);
create table windlass_attempt (
    seq integer not null,
    version integer not null,
    number integer not null,
    generation integer not null,
    started_at integer not null,
    ended_at integer not null,
    outcome integer not null,
    token blob not null,
    worker text not null,
    failure text,
    primary key (seq, version)
) without rowid;
create table windlass_log (
    seq integer not null,
    version integer not null,
    line integer not null,
    at integer not null,
    text text not null,
    primary key (seq, version, line)
) without rowid;
-- By what people look for jobs: `name` is `c` for a correlation id, `t:` and the key for a tag.
create table windlass_mark (seq integer not null, name text not null, value text not null, primary key (seq, name)) without rowid;
create index windlass_mark_value on windlass_mark (name, value, seq);
-- `seq` depends on `parent`, from its submission or by FAN_IN. `open` until the parent has ended.
create table windlass_edge (
    parent integer not null,
    seq integer not null,
    kind integer not null,
    open integer not null,
    primary key (parent, seq, kind)
) without rowid;
create index windlass_edge_child on windlass_edge (seq);
-- `until`: 0 the window, 1 the job's first claim, 2 its end. `first_at`: the first submission of those that replaced each
-- other. `look_at`: when upkeep looks whether the key can go.
create table windlass_key (
    scope text not null,
    key text not null,
    job blob not null,
    fingerprint blob not null,
    until integer not null,
    first_at integer not null,
    expires_at integer,
    look_at integer,
    primary key (scope, key)
) without rowid;
create index windlass_key_look on windlass_key (look_at) where look_at is not null;

-- The small records.
create table windlass_workflow (seq integer primary key, id blob not null, name text not null, created_at integer not null, pruned integer not null);
create unique index windlass_workflow_id on windlass_workflow (id);
create table windlass_schedule (
    name text primary key,
    timing text not null,
    missed text not null,
    overlap text not null,
    from_code integer not null,
    type text not null,
    queue text not null,
    priority integer not null,
    options text not null,
    content_type text,
    payload blob not null,
    version integer not null,
    paused integer not null,
    created_at integer not null,
    updated_at integer not null,
    next_at integer,
    last_slot integer,
    last_job blob,
    fired integer not null,
    last_error text
) without rowid;
create table windlass_worker (id text primary key, report text not null, started_at integer not null, seen_at integer not null, draining integer not null default 0) without rowid;
create table windlass_act (seq integer primary key, at integer not null, by text, act text not null, target text not null, changed integer not null, why text);
-- Ends that a requeue or an operator's dead-letter made unreadable in `done`.
create table windlass_past_end (ended integer primary key, seq integer not null, state integer not null, at integer not null);
-- What is remembered of the numbers over time, as JSON. `step` is in seconds.
create table windlass_sample (step integer not null, at integer not null, data text not null, primary key (step, at)) without rowid;

-- When upkeep last came by while jobs ran, and what the last absence means for leases; see Pulse in the program.
create table windlass_pulse (
    only_row integer primary key check (only_row = 1),
    at integer not null,
    away_from integer not null,
    grace_until integer not null
);
insert into windlass_pulse values (1, 0, 0, 0);

-- A move of the store, as JSON, and what changed while it was copied: kind 0 a job, 1 a workflow, 2 an idempotency key.
create table windlass_move (only_row integer primary key check (only_row = 1), record text not null);
create table windlass_change (number integer primary key, kind integer not null, seq integer, scope text, key text);
