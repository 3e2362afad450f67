-- Which jobs still stand at the door. $1 sequences. By ready_pkey; the sum keeps the index of claims out of it.
select r.seq
from unnest($1::bigint[]) as i(seq)
cross join lateral (select seq from windlass.ready where seq = i.seq and lane + 0 > 0 offset 0) r
