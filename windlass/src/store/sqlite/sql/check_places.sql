-- Jobs that stand in no place or in several, and places without a job.
select 'job number ' || seq || ' stands in ' || places || ' places and is stored ' || stored || ' times'
from (
    select seq, sum(place) as places, sum(job) as stored
    from (
        select seq, 0 as place, 1 as job from windlass_job
        union all
        select seq, 1, 0 from windlass_ready
        union all
        select seq, 1, 0 from windlass_pending
        union all
        select seq, 1, 0 from windlass_leased
        union all
        select seq, 1, 0 from windlass_done
    )
    group by seq
)
where places <> 1 or stored <> 1
limit 100;
