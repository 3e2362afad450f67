-- An unfinished job that depends on this one. ?1 parent. Primary keys.
select windlass_job.id
from windlass_edge
join windlass_job on windlass_job.seq = windlass_edge.seq
where windlass_edge.parent = ?1
    and not exists (select 1 from windlass_done where windlass_done.seq = windlass_edge.seq)
limit 1;
