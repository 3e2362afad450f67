-- Workflows, newest first. $1 before this sequence, $2 how many. By workflow_seq_key.
select workflow, name, created_at, pruned, seq
from windlass.workflow
where seq < $1::bigint
order by seq desc
limit $2::bigint
