-- Workflows before a place, newest first. ?1 seq, ?2 how many at most. Primary key.
select seq, id, name, created_at, pruned
from windlass_workflow
where seq < ?1
order by seq desc
limit ?2;
