-- Those of these jobs that have all of these tags, this correlation id and this code of their last failure; and whether
-- only a look at the whole job can say, because the functions for JSON refuse what it holds.
-- $1 sequences; $2 keys of tags; $3 their values; $4 correlation id; $5 code; $6 the same, where it stands in JSON as it is: a failure
-- without it is not read as JSON. What is null is not asked for.
-- By job_pkey and the keys of the narrow tables; no payload is read.
with seen as (
    select
        r.seq,
        r.options,
        r.failure,
        position('\u0000' in r.options || coalesce(r.failure, '')) > 0
            or not windlass.is_json(r.options)
            or not windlass.is_json(r.failure) as doubtful
    from windlass.record r
    where r.seq = any($1::bigint[]) and ($6::text is null or position($6::text in r.failure) > 0)
)
select s.seq, s.doubtful
from seen s
where case
    when s.doubtful then true
    else
        not exists (
            select 1
            from unnest($2::text[], $3::text[]) as wanted (key, value)
            where (s.options::json -> 'tags' ->> wanted.key) is distinct from wanted.value
        )
        and ($4::text is null or s.options::json ->> 'correlation_id' = $4::text)
        and ($5::text is null or s.failure::json ->> 'code' = $5::text)
end
