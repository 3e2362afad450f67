-- The failures of attempts after a place, in order. $1 and $2 the last place (seq, version); $3 how many at most.
-- By attempt_pkey.
select seq, version, failure
from windlass.attempt
where (seq, version) > ($1::bigint, $2::bigint) and failure is not null
order by seq, version
limit $3::bigint
