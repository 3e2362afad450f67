-- New jobs with the standard lifetime have no row in `windlass_lifetime` any more: they end in the order of `seq`, and
-- `outlived` is the newest one whose standard lifetime is known to be over.
alter table windlass_store add column outlived integer not null default 0;
