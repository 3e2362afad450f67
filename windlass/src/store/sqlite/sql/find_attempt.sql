-- Whether a job has a closed attempt under this token with this outcome. ?1 seq, ?2 token, ?3 outcome. Primary key.
select 1
from windlass_attempt
where seq = ?1 and token = ?2 and outcome = ?3
limit 1;
