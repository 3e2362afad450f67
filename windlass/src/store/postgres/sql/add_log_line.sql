-- Adds log lines, in order. $1 sequences, $2 lease versions, $3 times, $4 lines.
insert into windlass.log (seq, version, at, text)
select i.seq, i.version, i.at, i.text
from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[]) with ordinality as i(seq, version, at, text, place)
order by i.place
