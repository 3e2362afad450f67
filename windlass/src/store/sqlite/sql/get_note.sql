-- What few jobs have. ?1 seq. Primary key.
select failure, progress, checkpoint
from windlass_note
where seq = ?1;
