-- Whether a job has this id. ?1 seq, ?2 id. Primary key.
select 1
from windlass_job
where seq = ?1 and id = ?2;
