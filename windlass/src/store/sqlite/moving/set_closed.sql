-- Says why the store takes no writes, or that it does. ?1 the words or null.
update windlass_store set closed = ?1 where only_row = 1;
