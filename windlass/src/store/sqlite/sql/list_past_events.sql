-- Ends that are no longer in `done`, after a tick. ?1 tick, ?2 how many at most. Primary key.
select windlass_past_end.ended as tick, windlass_job.id, windlass_job.lane, windlass_past_end.at, windlass_past_end.state, windlass_job.options
from windlass_past_end
join windlass_job on windlass_job.seq = windlass_past_end.seq
where windlass_past_end.ended > ?1
order by windlass_past_end.ended
limit ?2;
