-- Every lane with its counts.
select lane, queue, type, pending, delayed, scheduled, running, retrying, completed, failed, dead_letter, cancelled
from windlass_lane
order by queue, type;
