-- Forgets workers that have not reported for long. $1 since when.
delete from windlass.worker where seen_at < $1::bigint
