-- What is kept of the gates of keys, in their order. ?1 queue, ?2 after this one, ?3 how many at most. Primary key.
select name, gate
from windlass_gate
where queue = ?1 and name > ?2 and name > 'k:' and name < 'k;'
order by name
limit ?3;
