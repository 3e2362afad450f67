-- Forgets the jobs that ordered keys were started with and that ended well, where nothing waits: no claim looks at these again.
-- $1 queue, which is held. By strand_later, and by job_pkey and the keys of the narrow tables.
update windlass.strand s
set owner = null
where s.queue = $1::int and s.look = 4000000000000000001 and s.owner is not null
    and not exists (
        select from windlass.record r
        where r.seq >= s.owner and r.seq <= s.owner and r.state not in (5, 8)
        offset 0)
