-- Keeps a schedule. Parameters in table order.
insert or replace into windlass_schedule (name, timing, missed, overlap, from_code, type, queue, priority, options, content_type, payload, version, paused, created_at, updated_at, next_at, last_slot, last_job, fired, last_error)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20);
