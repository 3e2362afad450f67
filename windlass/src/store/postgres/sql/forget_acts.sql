-- Forgets the oldest acts. $1 how many of the newest numbers are kept. By act_pkey.
delete from windlass.act
where act <= (select max(act) from windlass.act) - $1::bigint
