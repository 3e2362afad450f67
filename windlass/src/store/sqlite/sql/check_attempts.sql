-- The failures of attempts after a place, in order. ?1 and ?2 the last place (seq, version), ?3 how many at most. Primary key.
select seq, version, failure
from windlass_attempt
where (seq, version) > (?1, ?2) and failure is not null
order by seq, version
limit ?3;
