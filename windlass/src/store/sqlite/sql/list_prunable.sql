-- Jobs that ended in a state, oldest end first, after a tick. ?1 state, ?2 tick, ?3 how many at most.
-- Index windlass_done_ended.
select seq, lane, ended, updated_at
from windlass_done
where state = ?1 and ended > ?2
order by ended
limit ?3;
