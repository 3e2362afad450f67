-- Puts the wide rows of new jobs whose lanes exist. $1 the rows as JSON, without the payloads; $2 the payloads, in the same
-- order. By lane_pkey.
insert into windlass.job
    (seq, id, lane, priority, inherited, depth, created_at, deadline, visibility, content_type, payload, options,
    depends_on, workflow, schedule, slot, spawned_by)
select
    j.seq, j.id, j.lane, j.priority, j.inherited, j.depth, j.created_at, j.deadline, j.visibility, j.content_type,
    j.payload, j.options, j.depends_on, j.workflow, j.schedule, j.slot, j.spawned_by
from rows from (
    json_to_recordset($1::text::json) as (
        seq bigint, id uuid, lane int, priority smallint, inherited smallint, depth smallint, created_at bigint,
        deadline bigint, visibility bigint, content_type text, options text, depends_on text, workflow uuid,
        schedule text, slot bigint, spawned_by uuid),
    unnest($2::bytea[])
) as j(seq, id, lane, priority, inherited, depth, created_at, deadline, visibility, content_type, options, depends_on,
    workflow, schedule, slot, spawned_by, payload)
where exists (select from windlass.lane l where l.lane = j.lane)
