-- Says that something happened to a key. ?1 queue, ?2 key. Unique (queue, key, type).
update windlass_lane
set touched = 1
where queue = ?1 and key = ?2;
