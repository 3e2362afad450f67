-- Jobs of a workflow after a place, oldest first. $1 the place, $2 how many at most, $3 the workflow. By job_workflow.
select seq, lane, created_at
from windlass.job
where workflow = $3::uuid and seq > $1::bigint
order by seq asc
limit $2::bigint
