-- Says that something happened to all keys of a queue. ?1 queue. Unique (queue, key, type).
update windlass_lane
set touched = 1
where queue = ?1 and key > '';
