-- The newest log lines of a job that fit into an answer, oldest first. $1 sequence; $2 how many bytes fit; $3 what a line
-- counts beside its text. By log_pkey.
select w.version, w.at, w.text
from (
    select l.version, l.line, l.at, l.text,
        sum(octet_length(l.text) + $3::bigint) over (order by l.version desc, l.line desc) as bytes
    from windlass.log l
    where l.seq = $1::bigint
) w
where w.bytes <= $2::bigint
order by w.line
