-- Moves jobs from the door to their strands, but for those that another transaction holds. $1 sequences, $2 strands.
-- A row of ready is never updated but put in anew. By ready_pkey, then by place in the table.
with spots as materialized (
    select f.spot, i.strand
    from unnest($1::bigint[], $2::int[]) as i(seq, strand)
    cross join lateral (
        select r.ctid as spot
        from windlass.ready r
        where r.seq >= i.seq and r.seq <= i.seq and r.lane + 0 > 0
        for update of r skip locked
    ) f
),
gone as (
    delete from windlass.ready r
    using spots p
    where r.ctid = p.spot
    returning r.*, p.strand
)
insert into windlass.ready
    (seq, lane, priority, state, slow, due, deadline, visibility, lease_max, kept, version, attempt, failures, lost, generation,
    scheduled_at, updated_at, started_at, failed_at, failure)
select
    seq, strand, priority, state, slow, due, deadline, visibility, lease_max, kept, version, attempt, failures, lost, generation,
    scheduled_at, updated_at, started_at, failed_at, failure
from gone
