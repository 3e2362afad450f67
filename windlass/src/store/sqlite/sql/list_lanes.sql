-- Every lane with its counts and what it remembers.
select lane, queue, type, pending, delayed, scheduled, running, retrying, completed, failed, dead_letter, cancelled, removed, left_completed, left_failed, left_dead_letter, left_cancelled, retried, lost
from windlass_lane
order by queue, type;
