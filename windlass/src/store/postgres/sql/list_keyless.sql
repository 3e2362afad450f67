-- The strands on which what runs is counted where keys make no difference. $1 queue; $2 lanes. By strand_queue_key_lane_key.
select s.strand, s.lane
from unnest($2::int[]) as w(lane)
cross join lateral (select strand, lane from windlass.strand where queue = $1::int and key = '' and lane = w.lane offset 0) s
