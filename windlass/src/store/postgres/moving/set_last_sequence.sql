-- Goes on from this sequence, or from where it is. $1 the sequence.
select setval('windlass.seq', greatest($1::bigint, (select last_value from windlass.seq)))
