-- Keeps a closed attempt. Parameters in table order.
insert or replace into windlass_attempt (seq, version, number, generation, started_at, ended_at, outcome, token, worker, failure)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10);
