-- Jobs whose rows contradict each other.
select j.id, p.problem
from windlass.job j
cross join lateral (
    select
        (select count(*) from windlass.ready r where r.seq = j.seq)
        + (select count(*) from windlass.leased l where l.seq = j.seq)
        + (select count(*) from windlass.pending w where w.seq = j.seq)
        + (select count(*) from windlass.done d where d.seq = j.seq) as places
) n
cross join lateral (
    select 'it stands in ' || n.places || ' places instead of one' as problem where n.places <> 1
    union all
    select 'its lane, the number of its queue and type, does not exist'
    where not exists (select from windlass.lane a where a.lane = j.lane)
    union all
    select 'its row is of another lane'
    from windlass.record r
    left join windlass.ready a on a.seq = r.seq
    left join windlass.leased b on b.seq = r.seq
    left join windlass.pending c on c.seq = r.seq
    left join windlass.done d on d.seq = r.seq
    left join windlass.strand s on s.strand = a.lane
    where r.seq = j.seq and coalesce(s.lane, a.lane, b.lane, c.lane, d.lane) <> j.lane
    union all
    select 'it waits for other things than its edges say'
    from windlass.pending w
    where w.seq = j.seq
        and (w.waits_all <> (select count(*) from windlass.edge e where e.child = j.seq and e.open and e.kind <> 1)
            or (w.waits_any and not exists (
                select from windlass.edge e where e.child = j.seq and e.open and e.kind = 1)))
    union all
    select 'it waits for a job that has ended'
    from windlass.edge e
    where e.child = j.seq and e.open
        and not exists (select from windlass.done c where c.seq = j.seq)
        and (exists (select from windlass.done d where d.seq = e.parent)
            or not exists (select from windlass.job p where p.seq = e.parent))
    union all
    select 'its end has consequences that its row does not know of'
    from windlass.record r
    where r.seq = j.seq and r.state < 5 and not r.slow
        and (r.cancel is not null or exists (
            select from windlass.edge e where e.parent = j.seq and e.open
                and exists (select from windlass.pending w where w.seq = e.child)))
    union all
    select 'its priority is not the one it is claimed by'
    from windlass.ready r
    where r.seq = j.seq and r.priority <> least(j.priority, j.inherited)
    union all
    select 'its deadline is not the one it is held to'
    from windlass.record r
    left join windlass.ready a on a.seq = r.seq
    left join windlass.leased b on b.seq = r.seq
    left join windlass.pending c on c.seq = r.seq
    where r.seq = j.seq and r.state < 5 and coalesce(a.deadline, b.deadline, c.deadline) is distinct from r.deadline
) p
limit 100
