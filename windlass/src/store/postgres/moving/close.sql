-- Refuses every write from now on, as long as the row of the move says why, but for those of the move itself.
create or replace function windlass.refuse() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $refuse$
declare
    words text := (select m.closed from windlass.move m);
begin
    if words is not null and coalesce(current_setting('windlass.moving', true), '') <> 'on' then
        raise exception using errcode = 'WL001', message = words;
    end if;
    return null;
end
$refuse$;
create or replace trigger closed before insert or update or delete or truncate on windlass.job for each statement execute function windlass.refuse();
create or replace trigger closed before insert or update or delete or truncate on windlass.ready for each statement execute function windlass.refuse();
create or replace trigger closed before insert or update or delete or truncate on windlass.leased for each statement execute function windlass.refuse();
create or replace trigger closed before insert or update or delete or truncate on windlass.pending for each statement execute function windlass.refuse();
create or replace trigger closed before insert or update or delete or truncate on windlass.done for each statement execute function windlass.refuse();
create or replace trigger closed before insert or update or delete or truncate on windlass.edge for each statement execute function windlass.refuse();
create or replace trigger closed before insert or update or delete or truncate on windlass.attempt for each statement execute function windlass.refuse();
create or replace trigger closed before insert or update or delete or truncate on windlass.log for each statement execute function windlass.refuse();
create or replace trigger closed before insert or update or delete or truncate on windlass.key for each statement execute function windlass.refuse();
create or replace trigger closed before insert or update or delete or truncate on windlass.workflow for each statement execute function windlass.refuse();
create or replace trigger closed before insert or update or delete or truncate on windlass.schedule for each statement execute function windlass.refuse();
create or replace trigger closed before insert or update or delete or truncate on windlass.act for each statement execute function windlass.refuse();
create or replace trigger closed before insert or update or delete or truncate on windlass.queue for each statement execute function windlass.refuse();
create or replace trigger closed before insert or update or delete or truncate on windlass.lane for each statement execute function windlass.refuse();
create or replace trigger closed before insert or update or delete or truncate on windlass.event for each statement execute function windlass.refuse();
create or replace trigger closed before insert or update or delete or truncate on windlass.pulse for each statement execute function windlass.refuse();
create or replace trigger closed before insert or update or delete or truncate on windlass.sample for each statement execute function windlass.refuse();
create or replace trigger closed before insert or update or delete or truncate on windlass.worker for each statement execute function windlass.refuse();
create or replace trigger closed before insert or update or delete or truncate on windlass.gate for each statement execute function windlass.refuse();
create or replace trigger closed before insert or update or delete or truncate on windlass.strand for each statement execute function windlass.refuse();
create or replace trigger closed before insert or update or delete or truncate on windlass.note for each statement execute function windlass.refuse();
