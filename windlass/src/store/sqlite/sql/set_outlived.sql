-- Notes how far standard lifetimes were looked at. ?1 seq.
update windlass_store
set outlived = ?1
where only_row = 1;
