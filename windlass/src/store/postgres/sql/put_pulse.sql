-- Writes the pulse. $1 to $3 its fields. By pulse_pkey.
update windlass.pulse
set at = $1::bigint, away_from = $2::bigint, grace_until = $3::bigint
where only_row
