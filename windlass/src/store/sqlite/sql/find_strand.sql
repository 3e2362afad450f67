-- A strand by name. ?1 queue, ?2 type, ?3 key. Unique (queue, key, type).
select s.lane, s.type, s.key, s.delayed + s.scheduled + s.retrying as waiting, s.running, s.counted, s.touched, s.look, s.level, s.class, s.turn, s.place, s.next, g.gate
from windlass_lane as s
left join windlass_gate as g on g.queue = s.queue and g.name = s.key
where s.queue = ?1 and s.type = ?2 and s.key = ?3;
