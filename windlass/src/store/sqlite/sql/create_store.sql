-- Makes the row of numbers where there is none. ?1 the key of this file's ids.
insert or ignore into windlass_store (only_row, accepted, pruned, tick, latest, id_key)
values (1, 0, 0, 0, 0, ?1);
