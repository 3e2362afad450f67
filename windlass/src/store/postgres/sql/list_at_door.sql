-- Which jobs still stand at the door, and how. $1 sequences. By ready_pkey; the sum keeps the index of claims out of it.
select r.seq, r.priority, r.due
from unnest($1::bigint[]) as i(seq)
cross join lateral (select seq, priority, due from windlass.ready where seq = i.seq and lane + 0 > 0 offset 0) r
