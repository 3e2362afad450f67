-- Writes the row of numbers at the end of a transaction. ?1 accepted, ?2 pruned, ?3 tick, ?4 latest.
update windlass_store
set accepted = ?1, pruned = ?2, tick = ?3, latest = ?4
where only_row = 1;
