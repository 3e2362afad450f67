-- The newest step.
select coalesce(max(number), 0) as newest from windlass.migration
