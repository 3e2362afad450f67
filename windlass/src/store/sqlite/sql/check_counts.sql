-- Lanes whose counts are not what stands in them.
select 'queue ' || windlass_lane.queue || ', type ' || windlass_lane.type || ': state ' || counted.state || ' is counted as ' || counted.kept || ', but has ' || counted.there
from (
    select lane, state, sum(kept) as kept, sum(there) as there
    from (
        select lane, 0 as state, pending as kept, 0 as there from windlass_lane
        union all
        select lane, 1, delayed, 0 from windlass_lane
        union all
        select lane, 2, scheduled, 0 from windlass_lane
        union all
        select lane, 3, running, 0 from windlass_lane
        union all
        select lane, 4, retrying, 0 from windlass_lane
        union all
        select lane, 5, completed, 0 from windlass_lane
        union all
        select lane, 6, failed, 0 from windlass_lane
        union all
        select lane, 7, dead_letter, 0 from windlass_lane
        union all
        select lane, 8, cancelled, 0 from windlass_lane
        union all
        select lane, case kind when 0 then 2 when 1 then 1 else 4 end, 0, count(*) from windlass_ready group by 1, 2
        union all
        select lane, 0, 0, count(*) from windlass_pending group by 1
        union all
        select lane, 3, 0, count(*) from windlass_leased group by 1
        union all
        select lane, state, 0, count(*) from windlass_done group by 1, 2
    )
    group by lane, state
) as counted
join windlass_lane on windlass_lane.lane = counted.lane
where counted.kept <> counted.there
limit 100;
