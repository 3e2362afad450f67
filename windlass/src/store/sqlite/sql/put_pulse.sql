-- Writes the pulse. ?1 to ?3 its fields.
update windlass_pulse set at = ?1, away_from = ?2, grace_until = ?3 where only_row = 1;
