-- Lets leases count on strands, and marks them: the tokens of those that were claimed without gates do not say that their ends
-- are to be noted, but the slow path sees it. $1 sequences, whose rows are held; $2 keys; $3 lanes; $4 queue. By leased_pkey.
update windlass.leased l
set strand = s.strand, slow = true
from unnest($1::bigint[], $2::text[], $3::int[]) as i(seq, key, lane)
cross join lateral (
    select strand from windlass.strand where queue = $4::int and key = i.key and lane = i.lane offset 0
) s
where l.seq >= i.seq and l.seq <= i.seq
