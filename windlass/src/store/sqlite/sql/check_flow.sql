-- Types of controlled queues of which not as many jobs are counted as their strands count.
select 'queue ' || d.queue || ', type ' || d.type || ': its gate counts ' || d.counted || ' running jobs, its keys ' || coalesce(sum(s.counted), 0)
from windlass_lane as d left join windlass_lane as s on s.queue = d.queue and s.type = d.type and s.key <> ''
where d.key = ''
group by d.lane
having d.counted <> coalesce(sum(s.counted), 0)
limit 100;
