-- Keeps a log line. Parameters in table order.
insert into windlass_log (seq, version, line, at, text) values (?1, ?2, ?3, ?4, ?5);
