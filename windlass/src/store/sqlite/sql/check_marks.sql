-- Marks of jobs that are gone.
select 'job number ' || windlass_mark.seq || ' is gone, but its mark ' || windlass_mark.name || ' is not'
from windlass_mark
where not exists (select 1 from windlass_job where windlass_job.seq = windlass_mark.seq)
limit 100;
