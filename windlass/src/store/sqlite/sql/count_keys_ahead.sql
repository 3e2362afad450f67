-- How many other keys have an open strand before a place. ?1 queue, ?2 the key as it is stored, ?3 to ?7 the place (level, class, turn,
-- place, next), ?8 how many strands are looked at at most. Index windlass_lane_open.
select count(distinct key)
from (
    select s.key
    from windlass_lane as d
    cross join windlass_lane as s on s.queue = d.queue and s.type = d.type and s.look = 0
        and (s.level, s.class, s.turn, s.place, s.next) < (?3, ?4, ?5, ?6, ?7)
    where d.queue = ?1 and d.key = '' and s.key <> ?2
    limit ?8
);
