-- Whether this server can be written to: it is no standby, and not told to be only read.
select not pg_is_in_recovery() and current_setting('transaction_read_only') = 'off' as is_writable
