-- The jobs that an idempotency key stands for, one for each scope at most. ?1 key. Primary key, a seek for each scope
-- that lanes can have.
select windlass_key.job
from (
    select 't:' || type as scope from windlass_lane
    union
    select 'q:' || queue from windlass_lane
    union
    select 'g:'
) as scopes
cross join windlass_key on windlass_key.scope = scopes.scope and windlass_key.key = ?1;
