-- The sequences of jobs that have not ended, the oldest first, and where to go on if there may be more.
-- $1 beyond this sequence; $2 how many rows to look at; $3 queue; $4 type; $5 submitted from and $6 before;
-- $7 schedule; $8 workflow; $9 states; $10 whether the oldest come first. What is null or empty is not asked for.
-- By ready_pkey, waiting_pkey and leased_pkey.
with seen as materialized (
    select o.seq
    from (
        (select seq from windlass.ready where seq > $1::bigint order by seq asc limit $2::bigint)
        union all
        (select seq from windlass.waiting where seq > $1::bigint order by seq asc limit $2::bigint)
        union all
        (select seq from windlass.leased where seq > $1::bigint order by seq asc limit $2::bigint)
    ) o
    order by o.seq asc limit $2::bigint
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
        and ($8::uuid is null or j.workflow = $8::uuid)
        and (cardinality($9::smallint[]) >= 0 and $10::boolean is not null)
)
select f.seq, e.last
from (select case when count(*) >= $2::bigint then max(seq) end as last from seen) e
left join fits f on true
order by f.seq asc
