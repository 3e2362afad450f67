-- The first jobs of strands, up to a number of each priority. $1 the time; $2 strands, or the lanes of their doors; $3 how many.
-- By ready_claim.
select w.lane, r.seq, r.priority, r.due
from unnest($2::int[]) as w(lane)
cross join generate_series(0, 4) as p(priority)
cross join lateral (
    select r.seq, r.priority, r.due
    from windlass.ready r
    where r.lane = w.lane and r.priority = p.priority and r.due <= $1::bigint
        and (r.deadline is null or r.deadline > $1::bigint)
    order by r.due, r.seq + 0
    limit $3::int
) r
