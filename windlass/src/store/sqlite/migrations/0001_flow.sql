-- Flow control: how the keys of a controlled queue are found, and what is kept of its gates.

-- In a controlled queue the jobs of one key are counted in a lane of their own, a strand, whose `key` is `k:` and the key.
-- `counted` is what was running when a claim looked last; in a plain lane, the sum of that over the strands of its type. `touched`: something
-- else happened to the key. `look` is 0 while it is open, a moment if time will open it, less than 0 if it is full, null if it is empty; then its
-- order. Where keys take turns, `turn` is that of its key, whatever `look` says.
create index windlass_lane_touched on windlass_lane (queue) where key <> '' and (touched = 1 or running <> counted);
create index windlass_lane_open on windlass_lane (queue, type, level, class, turn, place, next) where look = 0;
create index windlass_lane_later on windlass_lane (queue, look) where look > 0;
create index windlass_lane_idle on windlass_lane (queue) where key <> '' and delayed + scheduled + running + retrying = 0;

-- `owner` is the job that an ordered key was started with.
create table windlass_gate (
    queue text not null,
    name text not null,
    gate text not null,
    owner integer,
    primary key (queue, name)
) without rowid;
create index windlass_gate_owner on windlass_gate (owner) where owner is not null;
