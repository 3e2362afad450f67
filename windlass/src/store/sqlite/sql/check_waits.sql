-- PENDING jobs that wait for nothing, or for another number of jobs than their edges say.
select 'job number ' || seq || ' is said to wait for ' || waits_all || ' jobs, but has ' || open || ' open edges'
from (
    select
        windlass_pending.seq,
        windlass_pending.waits_all,
        windlass_pending.waits_any,
        (select count(*) from windlass_edge where windlass_edge.seq = windlass_pending.seq and open = 1 and kind <> 1) as open
    from windlass_pending
)
where waits_all <> open or (waits_all = 0 and waits_any = 0)
limit 100;
