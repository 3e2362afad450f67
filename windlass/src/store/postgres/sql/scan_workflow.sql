-- The sequences of the jobs of a workflow, and where to go on if there may be more. Parameters as in scan_job_up.
-- By job_workflow.
with seen as materialized (
    select seq from windlass.job
    where workflow = $8::uuid
        and case when $10::boolean then seq > $1::bigint else seq < $1::bigint end
    order by case when $10::boolean then seq else -seq end
    limit $2::bigint
),
fits as (
    select j.seq
    from seen s
    cross join lateral (select * from windlass.job where seq = s.seq offset 0) j
    join windlass.lane l on l.lane = j.lane
    join windlass.queue q on q.queue = l.queue
    where ($3::text is null or q.name = $3::text)
        and ($4::text is null or l.job_type = $4::text)
        and ($5::bigint is null or j.created_at >= $5::bigint)
        and ($6::bigint is null or j.created_at < $6::bigint)
        and ($7::text is null or j.schedule = $7::text)
        and cardinality($9::smallint[]) >= 0
)
select f.seq, e.last
from (
    select case when count(*) >= $2::bigint then case when $10::boolean then max(seq) else min(seq) end end as last
    from seen
) e
left join fits f on true
order by case when $10::boolean then f.seq else -f.seq end
