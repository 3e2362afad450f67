-- What is kept around the jobs.
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
-- until: 0 the window, 1 the job's first claim, 2 its end. first_at: the first submission of those that replaced each other.
-- look_at: when upkeep looks whether the key can go.
create table windlass.key (
    scope text not null,
    key text not null,
    job uuid not null,
    until smallint not null,
    first_at bigint not null,
    expires_at bigint,
    look_at bigint,
    fingerprint bytea not null,
    primary key (scope, key)
);
create index key_look on windlass.key (look_at) where look_at is not null;

create table windlass.workflow (
    workflow uuid primary key,
    seq bigint not null unique,
    name text not null,
    created_at bigint not null,
    pruned bigint not null default 0
);
create table windlass.schedule (name text primary key, next_at bigint, paused boolean not null, record text not null);
create table windlass.worker (id text primary key, started_at bigint not null, seen_at bigint not null, draining bool not null default false, report text not null);
create table windlass.act (act bigint generated always as identity primary key, record text not null);
-- What is remembered of the numbers over time, as JSON; step is in seconds.
create table windlass.sample (step bigint not null, at bigint not null, data text not null, primary key (step, at));

-- One row for each kind of thing that one statement did in one lane: what happened, and the numbers that add up.
-- kind is a terminal state, 9 for accepted, 11 for a change in the number of PENDING jobs; a terminal state + 10 for a job of it
-- that was removed for good, + 15 for one that left it otherwise; 24 for an attempt that is tried again, 25 for a lost one.
-- Rows without seqs only count.
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
-- The jobs of a large batch are not worth compressing for the short time they are kept.
alter table windlass.event alter column seqs set storage external;

-- When upkeep last came by, and what the last absence of the server means for leases; see Pulse in the program. The store's time is
-- the server's clock and skew; server is when the server was started that upkeep came by on, so that another one is known. Written
-- once a second, always in the same place.
create table windlass.pulse (
    only_row boolean primary key default true check (only_row),
    at bigint not null default 0,
    away_from bigint not null default 0,
    grace_until bigint not null default 0,
    skew bigint not null default 0,
    server bigint not null default 0
) with (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
insert into windlass.pulse default values;

-- What is left of the correction of the server's clock, at this reading of it: since the last beat a twentieth of the time that passed,
-- of 3 s at most, was taken back. The next beat writes just that, so the store's time runs slower or faster, and never back.
create function windlass.remaining_skew(skew bigint, at bigint, raw bigint) returns bigint language sql immutable
return skew - sign(skew)::bigint * least(abs(skew), least(greatest(raw + skew - at, 0), 3000000) / 20);

-- A move of the store, as JSON; closed says why nothing may be written, while a move fills the store or after it was moved.
create table windlass.move (only_row boolean primary key default true check (only_row), record text not null, closed text);
-- What changed while the store was copied: kind 0 a job, 1 a workflow, 2 an idempotency key.
create table windlass.change (
    number bigint generated always as identity primary key,
    kind smallint not null,
    seq bigint,
    scope text,
    key text
);
