-- The key of the ids of this schema, and whether there are jobs from before it.
select id_key, has_old_ids from windlass.store
