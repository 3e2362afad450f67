-- Notes what changes from now on. A job always stands in one place, so what enters a place, changes there or is removed for
-- good is all there is; what leaves a place is noted where it comes to stand.
create function windlass.note_jobs() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $note$
begin
    insert into windlass.change (kind, seq) select 0, c.seq from changed c;
    return null;
end
$note$;
create function windlass.note_edges() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $note$
begin
    insert into windlass.change (kind, seq) select 0, c.child from changed c;
    return null;
end
$note$;
create function windlass.note_workflows() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $note$
begin
    insert into windlass.change (kind, seq) select 1, c.seq from changed c;
    return null;
end
$note$;
create function windlass.note_keys() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $note$
begin
    insert into windlass.change (kind, scope, key) select 2, c.scope, c.key from changed c;
    return null;
end
$note$;
create trigger note_in after insert on windlass.ready referencing new table as changed for each statement execute function windlass.note_jobs();
create trigger note_set after update on windlass.ready referencing new table as changed for each statement execute function windlass.note_jobs();
create trigger note_in after insert on windlass.pending referencing new table as changed for each statement execute function windlass.note_jobs();
create trigger note_set after update on windlass.pending referencing new table as changed for each statement execute function windlass.note_jobs();
create trigger note_in after insert on windlass.leased referencing new table as changed for each statement execute function windlass.note_jobs();
create trigger note_set after update on windlass.leased referencing new table as changed for each statement execute function windlass.note_jobs();
create trigger note_in after insert on windlass.done referencing new table as changed for each statement execute function windlass.note_jobs();
create trigger note_set after update on windlass.done referencing new table as changed for each statement execute function windlass.note_jobs();
create trigger note_set after update on windlass.job referencing new table as changed for each statement execute function windlass.note_jobs();
create trigger note_out after delete on windlass.job referencing old table as changed for each statement execute function windlass.note_jobs();
create trigger note_in after insert on windlass.attempt referencing new table as changed for each statement execute function windlass.note_jobs();
create trigger note_in after insert on windlass.log referencing new table as changed for each statement execute function windlass.note_jobs();
create trigger note_out after delete on windlass.log referencing old table as changed for each statement execute function windlass.note_jobs();
create trigger note_in after insert on windlass.edge referencing new table as changed for each statement execute function windlass.note_edges();
create trigger note_set after update on windlass.edge referencing new table as changed for each statement execute function windlass.note_edges();
create trigger note_out after delete on windlass.edge referencing old table as changed for each statement execute function windlass.note_edges();
create trigger note_in after insert on windlass.workflow referencing new table as changed for each statement execute function windlass.note_workflows();
create trigger note_set after update on windlass.workflow referencing new table as changed for each statement execute function windlass.note_workflows();
create trigger note_out after delete on windlass.workflow referencing old table as changed for each statement execute function windlass.note_workflows();
create trigger note_in after insert on windlass.key referencing new table as changed for each statement execute function windlass.note_keys();
create trigger note_set after update on windlass.key referencing new table as changed for each statement execute function windlass.note_keys();
create trigger note_out after delete on windlass.key referencing old table as changed for each statement execute function windlass.note_keys();
