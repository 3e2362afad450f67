-- How many due jobs of a lane have not been sorted to their keys, counted up to a limit. ?1 lane, ?2 now, ?3 the limit. Primary key.
select count(*)
from (
    select 1
    from (values (0), (1), (2), (3), (4)) as p cross join windlass_ready as w on w.lane = ?1 and w.priority = p.column1
    where w.at <= ?2
    limit ?3
);
