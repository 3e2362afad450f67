-- A worker. ?1 id.
select report, started_at, seen_at, draining
from windlass_worker
where id = ?1;
