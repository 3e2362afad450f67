-- Whether a schema has ever been migrated. $1 its name. Asks the tables, since the server's own caches may be behind.
select exists (
    select from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = $1::text and c.relname = 'migration') as there
