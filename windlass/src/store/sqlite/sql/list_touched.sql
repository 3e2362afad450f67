-- The strands to which something happened since a claim looked at them, with the gates of their keys. ?1 queue. Index windlass_lane_touched.
select s.lane, s.type, s.key, s.delayed + s.scheduled + s.retrying as waiting, s.running, s.counted, s.touched, s.look, s.level, s.class, s.turn, s.place, s.next, g.gate
from windlass_lane as s
left join windlass_gate as g on g.queue = s.queue and g.name = s.key
where s.queue = ?1 and s.key <> '' and (s.touched = 1 or s.running <> s.counted);
