-- Acts before a place, newest first. ?1 seq, ?2 how many at most. Primary key.
select seq, at, by, act, target, changed, why
from windlass_act
where seq < ?1
order by seq desc
limit ?2;
