-- Marks the store. ?1 its owner.
update windlass_store
set owner = ?1
where only_row = 1;
