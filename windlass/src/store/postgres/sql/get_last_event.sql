-- The last event, and whether nothing can appear before it any more. By event_xid.
select e.xid::text as xid, e.event, e.xid < pg_snapshot_xmin(pg_current_snapshot()) as settled
from windlass.event e
where e.seqs is not null
order by e.xid desc, e.event desc
limit 1
