-- Where the first SCHEDULED job of the keys of a queue stands; at most a thousand keys are looked at. ?1 queue, ?2 now. Primary keys.
select min((
    select at
    from windlass_ready
    where lane = s.lane and priority = p.column1 and at <= ?2
    order by at
    limit 1
))
from (
    select lane
    from windlass_lane
    where queue = ?1 and key > '' and delayed + scheduled + retrying > 0
    limit 1000
) as s cross join (values (0), (1), (2), (3), (4)) as p;
