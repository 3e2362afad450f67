-- Whether all jobs are accounted for: accepted = stored + pruned.
select accepted || ' accepted, but ' || stored || ' here and ' || pruned || ' pruned'
from (select accepted, pruned, (select count(*) from windlass_job) as stored from windlass_store)
where accepted <> stored + pruned;
