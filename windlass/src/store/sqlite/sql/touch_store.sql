-- Writes the row of numbers as it is, to see whether the file can be written to.
update windlass_store
set accepted = accepted
where only_row = 1;
