-- Has the strands of a queue looked at anew on which jobs wait: all of them, where limits have changed, or only those whose
-- owner is gone. $1 queue; $2 whether all; $3 whether turns begin anew. The queue is held.
-- By strand_queue_key_lane_key and job_pkey.
update windlass.strand s
set look = case when s.lane = 0 or s.look = 4000000000000000001 then s.look when s.look in (0, 2) then 2 else 1 end,
    turn = case when $3::boolean then 0 else s.turn end
where s.queue = $1::int
    and ($2::boolean
        or s.look = 4000000000000000000 and s.owner is not null
            -- A question about existence would be hashed on PostgreSQL 17 and later, which reads all jobs.
            and (select j.seq from windlass.job j where j.seq = s.owner) is null)
