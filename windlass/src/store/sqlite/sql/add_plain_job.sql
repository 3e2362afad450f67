-- Keeps a job that says nothing special. ?1 seq, ?2 id, ?3 lane, ?4 priority, ?5 created_at, ?6 payload.
insert into windlass_job (seq, id, lane, priority, created_at, depth, payload)
values (?1, ?2, ?3, ?4, ?5, 1, ?6);
