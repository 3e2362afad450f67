-- A worker, locked. $1 id. By worker_pkey.
select w.report, w.started_at, w.seen_at, w.draining
from windlass.worker w
where w.id = $1::text
for update
