-- Keeps what was submitted. Parameters in table order.
insert into windlass_job (seq, id, lane, priority, inherited, created_at, first_at, depth, workflow, schedule, slot, spawned_by, depends_on, options, content_type, payload)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16);
