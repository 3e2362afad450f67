-- After a server's clock was ahead: jobs that it made ready are due now, and jobs that it put off are due as long after now as
-- they were after that; of each lane and priority at most 10,000. $1 the time. By ready_claim, then by place in the table.
update windlass.ready r
set due = case when r.state = 2 then $1::bigint else greatest($1::bigint, r.due - (r.updated_at - $1::bigint)) end,
    updated_at = least(r.updated_at, $1::bigint)
where r.ctid = any(array(
    select f.spot
    from windlass.lane l
    cross join generate_series(0, 4) as p(priority)
    cross join lateral (
        select a.ctid as spot
        from windlass.ready a
        where a.lane = l.lane and a.priority = p.priority and a.due > $1::bigint + 1000000
            and (a.state = 2 or a.updated_at > $1::bigint + 1000000)
        order by a.due, a.seq + 0
        limit 10000
    ) f))
