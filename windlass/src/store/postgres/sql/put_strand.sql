-- Writes what a claim made of strands. $1 strands; then, for each: $2 look; $3 level; $4 class; $5 turn; $6 running; $7 tat;
-- $8 held_until; $9 owner. The queue is held. By strand_pkey, as a range (see complete).
update windlass.strand s
set look = i.look, level = i.level, class = i.class, turn = i.turn, running = i.running, tat = i.tat,
    held_until = i.held_until, owner = i.owner
from unnest(
    $1::int[], $2::bigint[], $3::smallint[], $4::smallint[], $5::bigint[], $6::int[], $7::bigint[], $8::bigint[], $9::bigint[]
) as i(strand, look, level, class, turn, running, tat, held_until, owner)
where s.strand >= i.strand and s.strand <= i.strand
