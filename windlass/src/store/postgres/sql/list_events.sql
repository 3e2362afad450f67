-- Events from a place on, and whether nothing can appear before each any more. $1 transaction, $2 event, $3 how many.
-- By event_xid.
select e.xid::text as xid, e.event, e.at, e.lane, e.kind, e.seqs,
    e.xid < pg_snapshot_xmin(pg_current_snapshot()) as settled
from windlass.event e
where e.seqs is not null and (e.xid, e.event) >= ($1::text::xid8, $2::bigint)
order by e.xid, e.event
limit $3::bigint + 1
