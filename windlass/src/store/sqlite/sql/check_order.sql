-- Jobs whose numbers were not given out, or that waited on a place they cannot be found in.
select 'job number ' || seq || ' waits where it cannot be found'
from windlass_ready
where moved = 0
    and not exists (
        select 1
        from windlass_job
        where windlass_job.seq = windlass_ready.seq
            and coalesce(windlass_job.first_at, windlass_job.created_at) = windlass_ready.at
            and min(windlass_job.priority, coalesce(windlass_job.inherited, 9)) = windlass_ready.priority
    )
limit 100;
