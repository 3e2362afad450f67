-- Whether a queue has an open strand. ?1 queue. Index windlass_lane_open.
select exists (select 1 from windlass_lane where queue = ?1 and look = 0);
