-- Takes back what a strand that goes was counted for. ?1 queue, ?2 type, ?3 how many. Unique (queue, key, type).
update windlass_lane
set counted = counted - ?3
where queue = ?1 and key = '' and type = ?2;
