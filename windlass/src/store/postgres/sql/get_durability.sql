-- The settings that say how safe a confirmed commit is, and how many standbys confirm commits; null where this role may not
-- see it. And the correction of the server's clock.
select
    pg_catalog.current_setting('fsync') as fsync,
    pg_catalog.current_setting('full_page_writes') as full_page_writes,
    pg_catalog.current_setting('synchronous_commit') as synchronous_commit,
    pg_catalog.current_setting('synchronous_standby_names') as standby_names,
    case
        when pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'usage') then (
            select count(*) from pg_catalog.pg_stat_replication r where r.sync_state in ('sync', 'quorum'))
    end as standbys,
    (select p.skew from windlass.pulse p where p.only_row) as skew
