-- The next jobs of a lane and priority after a place, in claim order: what was submitted, then the waiting row. ?1 lane,
-- ?2 priority, ?3 and ?4 the last place (at, seq), ?5 now, ?6 how many at most. Primary keys.
select j.id, j.lane, j.priority, j.inherited, j.created_at, j.first_at, j.depth, j.workflow, j.schedule, j.slot, j.spawned_by, j.depends_on, j.options, j.content_type, j.payload, w.at, w.seq, w.kind, w.deadline, w.flags, w.attempt, w.failures, w.lost, w.generation, w.version
from windlass_ready as w cross join windlass_job as j on j.seq = w.seq
where w.lane = ?1 and w.priority = ?2 and (w.at, w.seq) > (?3, ?4) and w.at <= ?5 and (w.deadline is null or w.deadline > ?5)
order by w.at, w.seq
limit ?6;
