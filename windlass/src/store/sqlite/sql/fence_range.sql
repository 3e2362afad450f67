-- RUNNING jobs that complete_range.sql would end; its parameters ?1 to ?4. Primary key.
select seq, lane
from windlass_leased
where seq between ?1 and ?2 and token = substr(?3, 16 * (seq - ?1) + 1, 16) and expires_at > ?4 and flags = 0 and version <= 100;
