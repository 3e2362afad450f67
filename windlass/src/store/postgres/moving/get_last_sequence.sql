-- The highest sequence that was drawn.
select last_value from windlass.seq
