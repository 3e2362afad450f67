-- The states of jobs, and whether each was ever claimed. $1 the time, null for the server's; $2 sequences; $3 ids.
-- By job_pkey and the keys of the narrow tables.
select r.id, case
    when r.state in (1, 4)
        and r.due <= coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) then 2::smallint
    else r.state
end as state, r.version > 0 as was_claimed
from windlass.record r
where r.seq = any($2::bigint[]) and r.id = any($3::uuid[]) and r.state is not null
