-- Takes over the key of another store's ids. ?1 the key.
update windlass_store set id_key = ?1 where only_row = 1;
