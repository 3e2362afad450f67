-- A commit that changes nothing, to see whether commits are confirmed: the log of the server takes a word that nobody reads.
select pg_catalog.pg_logical_emit_message(true, 'windlass', '') is not null as is_written
