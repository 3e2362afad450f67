-- Jobs that ended in a state other than COMPLETED after a place, oldest first. ?1 seq, ?2 how many at most, ?3 state, ?4 whether
-- the time of submission is asked for: only then is the job itself looked at. Index windlass_done_bad.
select seq, lane, iif(?4, (select j.created_at from windlass_job as j where j.seq = windlass_done.seq), 0) as created_at
from windlass_done
where state = ?3 and state <> 5 and seq > ?1
order by seq
limit ?2;
