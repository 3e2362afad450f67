-- Says that something happened to the keys that wait for these jobs. ?1 first, ?2 last of them. Index windlass_gate_owner.
update windlass_lane
set touched = 1
where (queue, key) in (select queue, name from windlass_gate where owner between ?1 and ?2);
