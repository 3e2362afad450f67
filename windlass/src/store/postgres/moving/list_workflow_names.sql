-- The sequences of workflows after a place. $1 the place, $2 how many at most. By workflow_seq_key.
select seq from windlass.workflow where seq > $1::bigint order by seq limit $2::bigint
