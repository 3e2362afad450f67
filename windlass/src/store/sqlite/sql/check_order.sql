-- Jobs whose numbers were not given out, or that waited on a place they cannot be found in.
select 'job number ' || seq || ' waits where it cannot be found'
from windlass_waiting
where moved = 0
    and not exists (
        select 1
        from windlass_job
        where windlass_job.seq = windlass_waiting.seq
            and coalesce(windlass_job.first_at, windlass_job.created_at) = windlass_waiting.at
            and min(windlass_job.priority, coalesce(windlass_job.inherited, 9)) = windlass_waiting.priority
    )
limit 100;
