-- Notes no longer what changes, and forgets what was noted.
drop function if exists windlass.note_jobs() cascade;
drop function if exists windlass.note_edges() cascade;
drop function if exists windlass.note_workflows() cascade;
drop function if exists windlass.note_keys() cascade;
delete from windlass.change;
