-- The newest dead jobs of a fault. ?1 fingerprint, ?2 how many at most. Index windlass_done_fault, which has all columns.
select seq, lane, updated_at as at
from windlass_done
where fingerprint = ?1
order by seq desc
limit ?2;
