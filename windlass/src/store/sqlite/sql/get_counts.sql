-- A lane's counts, in the order of the states. ?1 lane. Primary key.
select pending, delayed, scheduled, running, retrying, completed, failed, dead_letter, cancelled
from windlass_lane
where lane = ?1;
