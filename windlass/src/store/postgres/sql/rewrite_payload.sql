-- Replaces payloads that are still what was read, and gives the sequences of those.
-- $1 sequences, sorted; $2 and $3 the old types and bytes; $4 and $5 the new ones. By job_pkey, as a range (see complete).
update windlass.job j
set content_type = n.new_type, payload = n.new
from unnest($1::bigint[], $2::text[], $3::bytea[], $4::text[], $5::bytea[]) as n(seq, old_type, old, new_type, new)
where j.seq >= n.seq and j.seq <= n.seq and j.content_type is not distinct from n.old_type and j.payload = n.old
returning j.seq
