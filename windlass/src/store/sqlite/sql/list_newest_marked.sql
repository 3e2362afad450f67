-- Jobs with a tag or a correlation id before a place, newest first. ?1 seq, ?2 how many at most, ?3 the mark's name, ?4 its value.
-- Index windlass_mark_value.
select windlass_mark.seq, windlass_job.lane, windlass_job.created_at
from windlass_mark
join windlass_job on windlass_job.seq = windlass_mark.seq
where windlass_mark.name = ?3 and windlass_mark.value = ?4 and windlass_mark.seq < ?1
order by windlass_mark.seq desc
limit ?2;
