-- Says that something happened to the key of a strand. ?1 lane. Unique (queue, key, type).
update windlass_lane
set touched = 1
where (queue, key) in (select queue, key from windlass_lane where lane = ?1);
