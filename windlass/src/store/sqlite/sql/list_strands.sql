-- The strands of a controlled queue in which jobs wait or of which jobs run. ?1 queue. Index windlass_lane_busy.
select lane, type, key, delayed + scheduled + retrying as waiting, running
from windlass_lane
where queue = ?1 and key <> '' and delayed + scheduled + running + retrying > 0;
