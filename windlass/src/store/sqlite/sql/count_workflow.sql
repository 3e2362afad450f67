-- Where the jobs of a workflow stand: a state, or -1 for those that wait. ?1 workflow. Index windlass_job_workflow and
-- primary keys.
select
    case
        when windlass_done.seq is not null then windlass_done.state
        when windlass_leased.seq is not null then 3
        when windlass_pending.seq is not null then 0
        else -1
    end as place,
    windlass_job.seq
from windlass_job
left join windlass_done on windlass_done.seq = windlass_job.seq
left join windlass_leased on windlass_leased.seq = windlass_job.seq
left join windlass_pending on windlass_pending.seq = windlass_job.seq
where windlass_job.workflow = ?1;
