-- The newest samples of a step, newest first. ?1 step in seconds, ?2 from this moment on, ?3 before this one, ?4 how many at most.
-- Primary key.
select data
from windlass_sample
where step = ?1 and at >= ?2 and at < ?3
order by at desc
limit ?4;
