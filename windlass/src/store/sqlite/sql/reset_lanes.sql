-- Forgets how the lanes of a queue were counted and where its strands stood. ?1 queue. Unique (queue, key, type).
update windlass_lane
set
    counted = 0,
    touched = 0,
    look = null,
    turn = 0
where queue = ?1;
