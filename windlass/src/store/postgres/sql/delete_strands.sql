-- Forgets strands on which nothing waits or runs and of whose keys nothing is known (rule K16). $1 the time; $2 queue, which is
-- held; $3 how many at most. By strand_later and strand_pkey.
delete from windlass.strand
where strand = any(array(
    select s.strand
    from windlass.strand s
    where s.queue = $2::int and s.look = 4000000000000000001
        and s.running = 0 and s.owner is null and s.limits is null and s.tat <= $1::bigint * 1000
        and (s.held_until is null or s.held_until <= $1::bigint)
        and not exists (select from windlass.ready r where r.lane = s.strand offset 0)
    limit $3::bigint))
