-- Replaces a payload that is still what was read. ?1 seq, ?2 and ?3 the old type and bytes, ?4 and ?5 the new ones.
-- Primary key.
update windlass_job
set content_type = ?4, payload = ?5
where seq = ?1 and content_type is ?2 and payload = ?3;
