-- The first due jobs of a lane and priority, with their keys. ?1 lane, ?2 priority, ?3 now, ?4 how many at most. Primary keys.
select w.at, w.seq, w.kind, iif(json_valid(j.options), json_extract(j.options, '$.key'), null) as key
from windlass_ready as w cross join windlass_job as j on j.seq = w.seq
where w.lane = ?1 and w.priority = ?2 and w.at <= ?3 and (w.deadline is null or w.deadline > ?3)
order by w.at, w.seq
limit ?4;
