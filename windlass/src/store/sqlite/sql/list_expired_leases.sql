-- Leases that have expired. ?1 now, ?2 how many at most. Index windlass_leased_expiry.
select seq
from windlass_leased
where expires_at <= ?1
order by expires_at, seq
limit ?2;
