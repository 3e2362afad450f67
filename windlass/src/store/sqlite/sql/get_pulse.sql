-- The pulse.
select at, away_from, grace_until from windlass_pulse where only_row = 1;
