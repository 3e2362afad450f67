-- Keeps the newest thousand log lines of each attempt. $1 sequences, $2 lease versions. By log_pkey.
delete from windlass.log l
using (
    select i.seq, i.version, (
        select k.line from windlass.log k
        where k.seq = i.seq and k.version = i.version
        order by k.line desc offset 1000 limit 1
    ) as line
    from (select distinct * from unnest($1::bigint[], $2::bigint[]) as d(seq, version)) i
) c
where l.seq = c.seq and l.version = c.version and l.line <= c.line
