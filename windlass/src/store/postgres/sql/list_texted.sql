-- Those of these jobs that may have a text in their payload, their tags or their last failure. $1 sequences; $2 the text as
-- `encode(…, 'escape')` writes bytes, in small letters; $3 the text as it stands in JSON, in small letters, empty where that is not known.
-- By job_pkey and the keys of the narrow tables.
select j.seq
from windlass.job j
where j.seq = any($1::bigint[])
    and (
        position($2::text in lower(encode(j.payload, 'escape') collate "C")) > 0
        or position($3::text in lower(j.options collate "C")) > 0
    )
union
select d.seq from windlass.done d
where d.seq = any($1::bigint[]) and position($3::text in lower(d.failure collate "C")) > 0
union
select r.seq from windlass.ready r
where r.seq = any($1::bigint[]) and position($3::text in lower(r.failure collate "C")) > 0
union
select l.seq from windlass.leased l
where l.seq = any($1::bigint[]) and position($3::text in lower(l.failure collate "C")) > 0
union
select w.seq from windlass.pending w
where w.seq = any($1::bigint[]) and position($3::text in lower(w.failure collate "C")) > 0
