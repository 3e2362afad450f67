-- The first open strands of a type in their order. ?1 queue, ?2 type, ?3 how many at most. Index windlass_lane_open.
select s.lane, s.type, s.key, s.delayed + s.scheduled + s.retrying as waiting, s.running, s.counted, s.touched, s.look, s.level, s.class, s.turn, s.place, s.next, g.gate
from windlass_lane as s
left join windlass_gate as g on g.queue = s.queue and g.name = s.key
where s.queue = ?1 and s.type = ?2 and s.look = 0
order by s.level, s.class, s.turn, s.place, s.next
limit ?3;
