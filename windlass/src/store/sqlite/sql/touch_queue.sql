-- Says that something happened to all keys of a queue. ?1 queue, ?2 whether they take turns anew. Unique (queue, key, type).
update windlass_lane
set touched = 1, turn = iif(?2, 0, turn)
where queue = ?1 and key > '';
