-- The key of the ids of this schema.
select id_key from windlass.store
