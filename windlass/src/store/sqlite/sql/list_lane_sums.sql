-- The counts of every queue and type, over all its keys, and what its lanes remember. The first lane is the plain one.
select min(lane) as lane, queue, type, sum(pending), sum(delayed), sum(scheduled), sum(running), sum(retrying), sum(completed), sum(failed), sum(dead_letter), sum(cancelled), sum(removed), sum(left_completed), sum(left_failed), sum(left_dead_letter), sum(left_cancelled), sum(retried), sum(lost)
from windlass_lane
group by queue, type
order by queue, type;
