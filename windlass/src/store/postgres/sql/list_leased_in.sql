-- Leases of a queue that count on no strand, or all of them, but for those that another transaction holds; options are given
-- where they may name a key. $1 queue; $2 whether all. Reads the whole of leased: for queues that come under control.
select l.seq, l.lane, l.strand, j.options
from windlass.leased l
cross join lateral (
    select case when options like '%"key"%' then options end as options from windlass.job where seq = l.seq offset 0
) j
where l.lane = any(array(select a.lane from windlass.lane a where a.queue = $1::int)) and (l.strand is null or $2::boolean)
for update of l skip locked
