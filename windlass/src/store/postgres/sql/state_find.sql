-- The states of jobs. $1 the time, null for the server's; $2 ids. By job_id_key and the keys of the narrow tables.
select r.id, case
    when r.state in (1, 4)
        and r.due <= coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) then 2::smallint
    else r.state
end
from windlass.record r
where r.id = any($2::uuid[]) and r.state is not null
