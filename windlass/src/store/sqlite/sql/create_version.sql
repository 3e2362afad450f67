-- Makes the table that says how far the others have been migrated.
create table windlass_version (version integer primary key);
