-- Whether this server can be written to: it is no standby, and not told to be only read.
select
    not pg_catalog.pg_is_in_recovery() and pg_catalog.current_setting('transaction_read_only') = 'off' as is_writable
