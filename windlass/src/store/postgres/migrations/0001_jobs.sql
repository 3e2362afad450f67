-- Jobs: one wide row each that is hardly ever written again, and one narrow row that moves from table to table.
-- A job is PENDING in waiting, DELAYED, SCHEDULED or RETRYING in ready, RUNNING in leased, ended in done.
-- All times are microseconds since 1970.
create table windlass.queue (
    queue int generated always as identity primary key,
    name text not null unique,
    paused boolean not null default false
);
-- A lane is a queue and a type: claims look only into the lanes they want.
create table windlass.lane (
    lane int generated always as identity primary key,
    queue int not null references windlass.queue,
    job_type text not null,
    unique (queue, job_type)
);
create sequence windlass.seq;
create table windlass.job (
    seq bigint primary key,
    id uuid not null unique,
    lane int not null,
    priority smallint not null,
    inherited smallint,
    depth smallint not null default 1,
    created_at bigint not null,
    deadline bigint,
    visibility bigint not null,
    content_type text,
    payload bytea not null,
    options text not null,
    depends_on text,
    workflow uuid,
    schedule text,
    slot bigint,
    spawned_by uuid,
    progress text,
    checkpoint bytea
);
create index job_workflow on windlass.job (workflow) where workflow is not null;
create index job_schedule on windlass.job (schedule, seq) where schedule is not null;

-- The order of the columns before attempt is what the claim reads; due is the position, or run_at while it lies ahead.
create table windlass.ready (
    seq bigint primary key,
    id uuid not null,
    lane int not null,
    priority smallint not null,
    state smallint not null check (state in (1, 2, 4)),
    slow boolean not null,
    due bigint not null,
    deadline bigint,
    visibility bigint not null,
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
create index ready_claim on windlass.ready (lane, priority, due, seq);
create index ready_deadline on windlass.ready (deadline) where deadline is not null;
create index ready_later on windlass.ready (due) where state <> 2;

create table windlass.leased (
    id uuid primary key,
    seq bigint not null,
    lane int not null,
    priority smallint not null,
    slow boolean not null,
    token uuid not null,
    version bigint not null,
    expires_at bigint not null,
    deadline bigint,
    visibility bigint not null,
    attempt int not null,
    failures int not null,
    lost int not null,
    generation int not null,
    scheduled_at bigint not null,
    started_at bigint not null,
    failed_at bigint,
    failure text,
    worker text not null,
    cancel text
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index leased_expiry on windlass.leased (expires_at);
