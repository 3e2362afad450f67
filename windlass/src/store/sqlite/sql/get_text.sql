-- What people wrote into a job, as it is stored. ?1 seq. Primary keys.
select j.payload, j.options, (select n.failure from windlass_note as n where n.seq = j.seq) as failure
from windlass_job as j
where j.seq = ?1;
