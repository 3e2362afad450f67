-- Keeps what a claim found a strand to be. ?1 lane, ?2 counted, ?3 look, ?4 level, ?5 class, ?6 turn, ?7 place, ?8 next, ?9 to ?12 the changes of
-- its counts. Primary key.
update windlass_lane
set
    counted = ?2,
    touched = 0,
    look = ?3,
    level = ?4,
    class = ?5,
    turn = ?6,
    place = ?7,
    next = ?8,
    delayed = delayed + ?9,
    scheduled = scheduled + ?10,
    running = running + ?11,
    retrying = retrying + ?12
where lane = ?1;
