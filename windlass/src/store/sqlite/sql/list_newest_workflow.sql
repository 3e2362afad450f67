-- Jobs of a workflow before a place, newest first. ?1 seq, ?2 how many at most, ?3 workflow. Index windlass_job_workflow.
select seq, lane, created_at
from windlass_job
where workflow = ?3 and seq < ?1
order by seq desc
limit ?2;
