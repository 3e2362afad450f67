-- The leases that claims were granted. $1 the common parts of their tokens. Reads the whole of leased, and only
-- after the answer to a claim was lost.
select l.seq, l.token, j.id
from windlass.leased l
cross join lateral (select id from windlass.job where seq = l.seq offset 0) j
where l.token = any($1::uuid[])
