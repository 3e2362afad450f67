-- Moves jobs from strands back to their door, and gives how many it found. $1 strands, $2 how many at most.
-- By ready_claim, then by place in the table.
with spots as materialized (
    select f.spot, s.lane
    from unnest($1::int[]) as i(strand)
    cross join lateral (select strand, lane from windlass.strand where strand = i.strand offset 0) s
    cross join lateral (
        select r.ctid as spot
        from windlass.ready r
        where r.lane = s.strand
        limit $2::bigint
        for update of r skip locked
    ) f
    limit $2::bigint
),
gone as (
    delete from windlass.ready r
    using spots p
    where r.ctid = p.spot
    returning r.*, p.lane as door
)
insert into windlass.ready
    (seq, lane, priority, state, slow, due, deadline, visibility, lease_max, kept, version, attempt, failures, lost, generation,
    scheduled_at, updated_at, started_at, failed_at, failure)
select
    seq, door, priority, state, slow, due, deadline, visibility, lease_max, kept, version, attempt, failures, lost, generation,
    scheduled_at, updated_at, started_at, failed_at, failure
from gone
