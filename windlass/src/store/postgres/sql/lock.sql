-- Holds jobs that the hot path could move: their rows in ready and leased. $1 sequences.
-- By ready_pkey and leased_pkey.
with r as (
    select seq from windlass.ready where seq = any($1::bigint[]) order by seq for update
),
l as (
    select seq from windlass.leased where seq = any($1::bigint[]) order by seq for update
)
select seq from r union all select seq from l
