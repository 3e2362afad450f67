-- The pulse. By pulse_pkey.
select at, away_from, grace_until from windlass.pulse where only_row
