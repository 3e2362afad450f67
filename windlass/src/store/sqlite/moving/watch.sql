-- Notes what changes from now on. A job always stands in one place, so what enters a place, changes there or is removed for
-- good is all there is; what leaves a place is noted where it comes to stand.
create trigger if not exists windlass_note_ready_in after insert on windlass_ready begin insert into windlass_change (kind, seq) values (0, new.seq); end;
create trigger if not exists windlass_note_ready_set after update on windlass_ready begin insert into windlass_change (kind, seq) values (0, new.seq); end;
create trigger if not exists windlass_note_pending_in after insert on windlass_pending begin insert into windlass_change (kind, seq) values (0, new.seq); end;
create trigger if not exists windlass_note_pending_set after update on windlass_pending begin insert into windlass_change (kind, seq) values (0, new.seq); end;
create trigger if not exists windlass_note_leased_in after insert on windlass_leased begin insert into windlass_change (kind, seq) values (0, new.seq); end;
create trigger if not exists windlass_note_leased_set after update on windlass_leased begin insert into windlass_change (kind, seq) values (0, new.seq); end;
create trigger if not exists windlass_note_done_in after insert on windlass_done begin insert into windlass_change (kind, seq) values (0, new.seq); end;
create trigger if not exists windlass_note_done_set after update on windlass_done begin insert into windlass_change (kind, seq) values (0, new.seq); end;
create trigger if not exists windlass_note_job_set after update on windlass_job begin insert into windlass_change (kind, seq) values (0, new.seq); end;
create trigger if not exists windlass_note_job_out after delete on windlass_job begin insert into windlass_change (kind, seq) values (0, old.seq); end;
create trigger if not exists windlass_note_note_in after insert on windlass_note begin insert into windlass_change (kind, seq) values (0, new.seq); end;
create trigger if not exists windlass_note_note_set after update on windlass_note begin insert into windlass_change (kind, seq) values (0, new.seq); end;
create trigger if not exists windlass_note_attempt_in after insert on windlass_attempt begin insert into windlass_change (kind, seq) values (0, new.seq); end;
create trigger if not exists windlass_note_log_in after insert on windlass_log begin insert into windlass_change (kind, seq) values (0, new.seq); end;
create trigger if not exists windlass_note_log_out after delete on windlass_log begin insert into windlass_change (kind, seq) values (0, old.seq); end;
create trigger if not exists windlass_note_edge_in after insert on windlass_edge begin insert into windlass_change (kind, seq) values (0, new.seq); end;
create trigger if not exists windlass_note_edge_set after update on windlass_edge begin insert into windlass_change (kind, seq) values (0, new.seq); end;
create trigger if not exists windlass_note_edge_out after delete on windlass_edge begin insert into windlass_change (kind, seq) values (0, old.seq); end;
create trigger if not exists windlass_note_workflow_in after insert on windlass_workflow begin insert into windlass_change (kind, seq) values (1, new.seq); end;
create trigger if not exists windlass_note_workflow_set after update on windlass_workflow begin insert into windlass_change (kind, seq) values (1, new.seq); end;
create trigger if not exists windlass_note_workflow_out after delete on windlass_workflow begin insert into windlass_change (kind, seq) values (1, old.seq); end;
create trigger if not exists windlass_note_key_in after insert on windlass_key begin insert into windlass_change (kind, scope, key) values (2, new.scope, new.key); end;
create trigger if not exists windlass_note_key_set after update on windlass_key begin insert into windlass_change (kind, scope, key) values (2, new.scope, new.key); end;
create trigger if not exists windlass_note_key_out after delete on windlass_key begin insert into windlass_change (kind, scope, key) values (2, old.scope, old.key); end;
