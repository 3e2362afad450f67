-- Marks the store. $1 its owner.
update windlass.store set owner = $1::text
