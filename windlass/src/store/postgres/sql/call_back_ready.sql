-- After a server's clock was ahead: jobs that it made ready are due now, and jobs that it put off are due as long after now as
-- they were after that. $1 the time. Rare, and by any index.
update windlass.ready r
set due = case when r.state = 2 then $1::bigint else greatest($1::bigint, r.due - (r.updated_at - $1::bigint)) end,
    updated_at = least(r.updated_at, $1::bigint)
where r.due > $1::bigint + 1000000 and (r.state = 2 or r.updated_at > $1::bigint + 1000000)
