-- What waits, what ended, and the small records around the jobs.
create table windlass.waiting (
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
create index waiting_deadline on windlass.waiting (deadline) where deadline is not null;

create table windlass.done (
    seq bigint primary key,
    lane int not null,
    state smallint not null check (state between 5 and 8),
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
    result_type text,
    result bytea,
    check ((state = 5) = (reason is null))
);
create index done_end on windlass.done (state, completed_at, seq);
create index done_dead on windlass.done (state, seq) where state <> 5;

-- An edge is open until the job it points at has ended.
create table windlass.edge (
    child bigint not null,
    parent bigint not null,
    kind smallint not null,
    open boolean not null,
    primary key (child, parent, kind)
);
create index edge_parent on windlass.edge (parent);

create table windlass.attempt (
    seq bigint not null,
    version bigint not null,
    token uuid not null,
    number int not null,
    generation int not null,
    outcome smallint not null,
    started_at bigint not null,
    ended_at bigint not null,
    worker text not null,
    failure text,
    primary key (seq, version)
);
create table windlass.log (
    seq bigint not null,
    version bigint not null,
    line bigint generated always as identity,
    at bigint not null,
    text text not null,
    primary key (seq, version, line)
);
create table windlass.key (
    scope text not null,
    key text not null,
    job uuid not null,
    expires_at bigint,
    fingerprint bytea not null,
    primary key (scope, key)
);
create index key_end on windlass.key (expires_at) where expires_at is not null;

create table windlass.workflow (
    workflow uuid primary key,
    seq bigint not null unique,
    name text not null,
    created_at bigint not null,
    pruned bigint not null default 0
);
create table windlass.schedule (name text primary key, next_at bigint, paused boolean not null, record text not null);
create table windlass.worker (id text primary key, started_at bigint not null, seen_at bigint not null, report text not null);
create table windlass.act (act bigint generated always as identity primary key, record text not null);
