-- Jobs that ended in a state and that the store's own retention removes, oldest end first, after a tick. ?1 state, ?2 tick, ?3 how many at most.
-- Index windlass_done_ended.
select seq, lane, ended, updated_at
from windlass_done
where state = ?1 and ended > ?2 and prune_at is null
order by ended
limit ?3;
