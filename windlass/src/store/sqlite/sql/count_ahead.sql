-- How many SCHEDULED jobs of a lane and priority stand before a place. ?1 lane, ?2 priority, ?3 and ?4 the place
-- (at, seq), ?5 how many are counted at most. Primary key.
select count(*)
from (
    select 1
    from windlass_ready
    where lane = ?1 and priority = ?2 and (at, seq) < (?3, ?4)
    limit ?5
);
