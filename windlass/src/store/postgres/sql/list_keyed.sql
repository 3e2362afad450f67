-- The jobs that an idempotency key stands for, one for each scope at most. $1 key. By key_pkey, a seek for each
-- scope that lanes can have.
select k.job
from (
    select 't:' || job_type as scope from windlass.lane
    union
    select 'q:' || name from windlass.queue
    union
    select 'g:'
) s
cross join lateral (select job from windlass.key where scope = s.scope and key = $1::text offset 0) k
