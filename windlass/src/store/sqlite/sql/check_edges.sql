-- Edges that are open although the job they wait for has ended or is gone.
select 'job number ' || windlass_edge.seq || ' waits for number ' || windlass_edge.parent || ', which has ended'
from windlass_edge
where windlass_edge.open = 1
    and (
        exists (select 1 from windlass_done where windlass_done.seq = windlass_edge.parent)
        or not exists (select 1 from windlass_job where windlass_job.seq = windlass_edge.parent)
    )
limit 100;
