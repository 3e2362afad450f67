-- Workers heard of since a moment, by id. ?1 the moment.
select report, started_at, seen_at, draining
from windlass_worker
where seen_at >= ?1
order by id;
