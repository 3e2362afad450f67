-- Jobs that ended in a state before a tick, the last first. ?1 state, ?2 tick, ?3 how many at most. Index windlass_done_ended.
select ended as place, seq
from windlass_done
where state = ?1 and ended < ?2
order by ended desc
limit ?3;
