-- Flow control. All of it is empty, and never looked at, while no queue is controlled.
-- The jobs of one key and type of a controlled queue wait on a strand: in ready, with the strand's number in place of the lane.
-- Strands have numbers below zero. A job whose lane is one of its queue's stands at the door, until a claim sorts it.
-- look: 0 open; 1 to be looked at, was closed; 2 to be looked at, was open; a moment to look at; 4000000000000000000 full;
-- 4000000000000000001 nothing waits. level, class, turn: its place among others. What belongs to the key is the same in all its
-- strands (tat, held_until, owner, limits, and the turn where keys take turns), but for running, which adds up. A strand of
-- lane 0 has no jobs: it keeps what was set for a key that has no other.
create sequence windlass.strand_number as int;
create table windlass.strand (
    strand int primary key default (-nextval('windlass.strand_number'))::int,
    queue int not null,
    key text collate "C" not null,
    lane int not null,
    look bigint not null,
    level smallint not null,
    class smallint not null,
    turn bigint not null,
    running int not null,
    tat bigint not null,
    held_until bigint,
    owner bigint,
    limits text,
    unique (queue, key, lane)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
-- running is in no index, so most ends of leases change none.
create index strand_next on windlass.strand (lane, level, class, turn) where look = 0;
create index strand_later on windlass.strand (queue, look) where look > 0;

-- The gates of types in a controlled queue, by lane, and its own with lane 0, whose running is the sum of the others.
-- swept_at: when upkeep last counted everything anew.
create table windlass.gate (
    queue int not null,
    lane int not null,
    running int not null default 0,
    tat bigint not null default 0,
    held_until bigint,
    turn bigint not null default 0,
    swept_at bigint not null default 0,
    primary key (queue, lane)
) with (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- What transactions that end leases leave behind for the next claim: how many fewer run on which strands, which key is to be
-- looked at, which gate is held. Only ever inserted, so that nobody waits for anybody.
create table windlass.note (
    queue int not null,
    note bigint generated always as identity,
    strands int[],
    counts int[],
    lane int,
    key text,
    hold bigint,
    primary key (queue, note)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
