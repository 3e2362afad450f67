-- Replaces results that are still what was read, and gives the sequences of those.
-- $1 sequences, sorted; $2 and $3 the old types and bytes; $4 and $5 the new ones. By done_pkey, as a range (see complete).
update windlass.done d
set result_type = n.new_type, result = n.new
from unnest($1::bigint[], $2::text[], $3::bytea[], $4::text[], $5::bytea[]) as n(seq, old_type, old, new_type, new)
where d.seq >= n.seq and d.seq <= n.seq and d.result_type is not distinct from n.old_type and d.result = n.old
returning d.seq
