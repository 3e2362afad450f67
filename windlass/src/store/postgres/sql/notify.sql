-- Sends a hint. $1 channel, $2 text.
select pg_catalog.pg_notify($1::text, $2::text)
