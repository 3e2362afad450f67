-- Keeps what is known of keys of a controlled queue, each on a strand without jobs. $1 queue; then, for each: $2 key; $3 turn; $4 tat;
-- $5 held_until; $6 owner; $7 limits as JSON.
insert into windlass.strand (queue, key, lane, look, level, class, turn, running, tat, held_until, owner, limits)
select $1::int, i.key, 0, 4000000000000000001, 0, 0, i.turn, 0, i.tat, i.held_until, i.owner, i.limits
from unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[])
    as i(key, turn, tat, held_until, owner, limits)
