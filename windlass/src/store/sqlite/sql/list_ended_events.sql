-- Jobs that ended in a state after a tick. ?1 tick, ?2 how many at most, ?3 state. Index windlass_done_ended.
select windlass_done.ended as tick, windlass_job.id, windlass_done.lane, windlass_done.updated_at as at, windlass_done.state, windlass_job.options
from windlass_done
join windlass_job on windlass_job.seq = windlass_done.seq
where windlass_done.state = ?3 and windlass_done.ended > ?1
order by windlass_done.ended
limit ?2;
