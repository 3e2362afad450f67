-- Whether a schema has ever been migrated. $1 its table of migrations.
select to_regclass($1::text) is not null
