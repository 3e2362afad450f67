-- The next fingerprints of dead jobs after one. $1 the fingerprint, -1 for the first; $2 how many at most.
-- By done_fault, a seek for each.
with recursive groups (fingerprint, number) as (
    select (
        select d.fingerprint from windlass.done d
        where d.fingerprint > $1::bigint and d.fingerprint is not null
        order by d.fingerprint
        limit 1), 1
    union all
    select (
        select d.fingerprint from windlass.done d
        where d.fingerprint > g.fingerprint and d.fingerprint is not null
        order by d.fingerprint
        limit 1), g.number + 1
    from groups g
    where g.fingerprint is not null and g.number < $2::bigint
)
select fingerprint
from groups
where fingerprint is not null
