-- A job's id. ?1 seq. Primary key.
select id
from windlass_job
where seq = ?1;
