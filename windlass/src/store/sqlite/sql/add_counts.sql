-- Adds to a lane's counts. ?1 lane, ?2 to ?10 the changes in the order of the states.
update windlass_lane
set
    pending = pending + ?2,
    delayed = delayed + ?3,
    scheduled = scheduled + ?4,
    running = running + ?5,
    retrying = retrying + ?6,
    completed = completed + ?7,
    failed = failed + ?8,
    dead_letter = dead_letter + ?9,
    cancelled = cancelled + ?10
where lane = ?1;
