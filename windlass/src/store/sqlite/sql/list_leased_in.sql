-- The RUNNING jobs of a lane, with their keys. ?1 lane. Reads all leases: only when a queue comes under control.
select l.seq, iif(json_valid(j.options), json_extract(j.options, '$.key'), null) as key
from windlass_leased as l cross join windlass_job as j on j.seq = l.seq
where l.lane = ?1;
