-- Forgets schedules, acts and what was counted.
with s as (delete from windlass.schedule), a as (delete from windlass.act) delete from windlass.event
