-- The next fingerprints of dead jobs after one. ?1 the fingerprint, -1 for the first; ?2 how many at most.
-- Index windlass_done_fault, a seek for each.
with recursive groups (fingerprint, number) as (
    select (select min(fingerprint) from windlass_done where fingerprint is not null and fingerprint > ?1), 1
    union all
    select (select min(d.fingerprint) from windlass_done as d where d.fingerprint is not null and d.fingerprint > groups.fingerprint), groups.number + 1
    from groups
    where groups.fingerprint is not null and groups.number < ?2
)
select fingerprint
from groups
where fingerprint is not null;
