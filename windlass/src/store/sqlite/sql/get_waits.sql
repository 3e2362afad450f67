-- What a PENDING job still waits for. ?1 seq. Primary key.
select waits_all, waits_any
from windlass_pending
where seq = ?1;
