-- Holds jobs that the hot path could move: their rows in ready and leased. $1 sequences, sorted.
-- By ready_pkey and leased_pkey.
with r as (
    select f.seq
    from unnest($1::bigint[]) as i(seq)
    cross join lateral (select seq from windlass.ready where seq = i.seq for update) f
),
l as (
    select f.seq
    from unnest($1::bigint[]) as i(seq)
    cross join lateral (select seq from windlass.leased where seq = i.seq for update) f
)
select seq from r union all select seq from l
