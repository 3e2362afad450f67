-- Jobs submitted after a tick. ?1 tick, ?2 how many at most. Primary key.
select seq as tick, id, lane, created_at as at, options
from windlass_job
where seq > ?1
order by seq
limit ?2;
