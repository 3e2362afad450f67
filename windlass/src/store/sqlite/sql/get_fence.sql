-- What a fence looks at. ?1 seq. Primary key.
select token, expires_at, deadline, started_at, lease_max, version, flags, cancel
from windlass_leased
where seq = ?1;
