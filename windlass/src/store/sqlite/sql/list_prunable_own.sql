-- Ended jobs with a retention of their own that is over. ?1 the time, ?2 how many at most. Index windlass_done_prune.
select seq, lane, state
from windlass_done
where prune_at <= ?1
order by prune_at
limit ?2;
