-- Whether any job between two numbers belongs to a workflow or to a dependency. ?1 lowest seq, ?2 highest. Primary keys and
-- index windlass_edge_child.
select
    exists (select 1 from windlass_job where seq between ?1 and ?2 and workflow is not null)
    or exists (select 1 from windlass_edge where parent between ?1 and ?2)
    or exists (select 1 from windlass_edge where seq between ?1 and ?2);
