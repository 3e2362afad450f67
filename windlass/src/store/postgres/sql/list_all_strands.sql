-- The strands of a queue after one, by number downwards. $1 queue, $2 the last one, $3 how many at most. By strand_pkey.
select strand from windlass.strand
where queue = $1::int and strand < $2::int
order by strand desc
limit $3::bigint
