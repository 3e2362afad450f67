-- Sends a hint. $1 channel, $2 words.
select pg_notify($1::text, $2::text)
