-- Lets the keys of a queue begin with their turns anew, of which those that came with a move are kept with the gates. ?1 queue.
-- Primary key.
update windlass_gate
set gate = json_set(gate, '$.turn', 0)
where queue = ?1 and json_valid(gate);
