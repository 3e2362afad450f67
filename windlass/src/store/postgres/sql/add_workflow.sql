-- Makes a workflow. $1 its id, $2 its name, $3 the time.
insert into windlass.workflow (workflow, seq, name, created_at)
values ($1::uuid, nextval('windlass.seq'), $2::text, $3::bigint)
