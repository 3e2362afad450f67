-- Whether this server can be written to, its timeline in hexadecimal (a standby has none that counts), the cluster that it is
-- of, and when it was started.
select
    not pg_catalog.pg_is_in_recovery() and pg_catalog.current_setting('transaction_read_only') = 'off' as is_writable,
    case
        when pg_catalog.pg_is_in_recovery() then null
        else pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8)
    end as timeline,
    (select system_identifier from pg_catalog.pg_control_system()) as system,
    pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time()) as started
