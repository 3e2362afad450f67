-- The highest number of an end.
select coalesce(max(ended), 0) from windlass_done;
