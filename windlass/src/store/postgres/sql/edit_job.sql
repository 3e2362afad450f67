-- Changes what may change of wide rows. $1 the rows as JSON; options that are null stay as they are.
-- By job_pkey, as a range (see complete).
update windlass.job j
set priority = n.priority, inherited = n.inherited, depth = n.depth, deadline = n.deadline, options = coalesce(n.options, j.options)
from json_to_recordset($1::text::json) as n(
    seq bigint, priority smallint, inherited smallint, depth smallint, deadline bigint, options text)
where j.seq >= n.seq and j.seq <= n.seq
