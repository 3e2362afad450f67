-- Sends hints from a connection of its own, without waiting for the disk: until its commit is there, no other client of
-- the database can notify, and a hint may be lost. Never for a transaction that does anything else. $1 channel, $2 texts.
select
    pg_catalog.set_config('synchronous_commit', 'off', true),
    pg_catalog.pg_notify($1::text, hints)
from pg_catalog.unnest($2::text[]) as hints
