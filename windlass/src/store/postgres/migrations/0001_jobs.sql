-- Jobs: one wide row each that is hardly ever written again, and one narrow row that moves from table to table.
-- A job is PENDING in pending, DELAYED, SCHEDULED or RETRYING in ready, RUNNING in leased, ended in done.
-- All times are microseconds since 1970.
-- Claims of plain queues pass over a queue that is paused. halted: an operator paused it. A controlled queue is always paused:
-- it is claimed from through its gates. control: what it has been told, as JSON.
create table windlass.queue (
    queue int generated always as identity primary key,
    name text not null unique,
    paused boolean not null default false,
    halted boolean not null default false,
    control text
);
-- A lane is a queue and a type: claims look only into the lanes they want. Programs remember its number, which is drawn at
-- random: after a failover that lost a lane, the number never comes to stand for another.
create table windlass.lane (
    lane int primary key default (1 + floor(random() * 2147483646))::int,
    queue int not null references windlass.queue,
    job_type text not null,
    unique (queue, job_type)
);
create sequence windlass.seq;
-- An id is the job's sequence under a mask that is computed with id_key, so that no index of random ids is needed.
-- owner is the command whose own the store is, if it is one's.
create table windlass.store (
    only_row boolean primary key default true check (only_row),
    id_key bytea not null,
    owner text
);
insert into windlass.store (id_key)
values (sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')));
create table windlass.job (
    seq bigint primary key,
    id uuid not null,
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
create index job_workflow on windlass.job (workflow, seq) where workflow is not null;
create index job_schedule on windlass.job (schedule, seq) where schedule is not null;
