-- The newest jobs that ended in a state. ?1 state, ?2 how many at most. Index windlass_done_ended.
select lane, state, scheduled_at, started_at, updated_at as at
from windlass_done
where state = ?1
order by ended desc
limit ?2;
