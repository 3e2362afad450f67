-- Writes the pulse. $1 to $3 its fields, $4 the correction of the server's clock. By pulse_pkey.
update windlass.pulse
set at = $1::bigint, away_from = $2::bigint, grace_until = $3::bigint, skew = $4::bigint,
    server = (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint
where only_row
