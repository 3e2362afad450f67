-- Keeps records of workflows. $1 ids, $2 sequences, $3 names, $4 times, $5 how many of their jobs are gone. By workflow_pkey.
insert into windlass.workflow (workflow, seq, name, created_at, pruned)
select i.workflow, i.seq, i.name, i.created_at, i.pruned
from unnest($1::uuid[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[]) as i(workflow, seq, name, created_at, pruned)
on conflict (workflow) do update set pruned = excluded.pruned
