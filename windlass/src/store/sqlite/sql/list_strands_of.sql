-- The strands of these keys. ?1 queue, ?2 keys as a list in JSON. Unique (queue, key, type).
select s.lane, s.type, s.key, s.delayed + s.scheduled + s.retrying as waiting, s.running, s.counted, s.touched, s.look, s.level, s.class, s.turn, s.place, s.next, g.gate
from json_each(?2) as k cross join windlass_lane as s on s.queue = ?1 and s.key = k.value
left join windlass_gate as g on g.queue = s.queue and g.name = s.key;
