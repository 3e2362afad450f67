-- The number of an attempt's newest log line; 0 for none. ?1 seq, ?2 version. Primary key.
select coalesce(max(line), 0)
from windlass_log
where seq = ?1 and version = ?2;
