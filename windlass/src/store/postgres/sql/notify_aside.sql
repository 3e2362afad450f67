-- Sends a hint from a connection of its own, without waiting for the disk: until its commit is there, nobody else of the
-- database can notify, and a hint may be lost. Never for a transaction that does anything else. $1 channel, $2 words.
select set_config('synchronous_commit', 'off', true), pg_notify($1::text, $2::text)
