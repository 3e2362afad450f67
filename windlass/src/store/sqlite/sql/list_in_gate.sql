-- The RUNNING jobs in a gate of a controlled queue that started first. ?1 queue; ?2 type, null for all; ?3 the key of the strand,
-- null for all; ?4 how many. Reads all leases: for one explanation.
select seq
from windlass_leased
where lane in (
    select lane
    from windlass_lane
    where queue = ?1 and (?2 is null or type = ?2) and (?3 is null or key = ?3)
)
order by started_at, seq
limit ?4;
