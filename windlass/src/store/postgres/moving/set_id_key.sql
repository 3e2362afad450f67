-- Takes over the key of another store's ids. $1 the key.
update windlass.store set id_key = $1::bytea
