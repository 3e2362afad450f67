-- Replaces a result that is still what was read. ?1 seq, ?2 and ?3 the old type and bytes, ?4 and ?5 the new ones.
-- Primary key.
update windlass_done
set result_type = ?4, result = ?5
where seq = ?1 and result_type is ?2 and result = ?3;
