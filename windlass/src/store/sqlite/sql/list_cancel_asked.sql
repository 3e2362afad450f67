-- Jobs that were asked to stop. Index windlass_leased_cancel.
select windlass_job.id
from windlass_leased
join windlass_job on windlass_job.seq = windlass_leased.seq
where windlass_leased.cancel is not null
limit 1000;
