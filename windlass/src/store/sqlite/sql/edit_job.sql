-- Writes what may change of what was submitted. ?1 seq, ?2 priority, ?3 inherited priority, ?4 options or null, ?5 whether
-- the options are damaged and stay as they are. Primary key.
update windlass_job
set priority = ?2, inherited = ?3, options = case when ?5 then options else ?4 end
where seq = ?1;
