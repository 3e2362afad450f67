-- The newest step.
select coalesce(max(number), 0) from windlass.migration
