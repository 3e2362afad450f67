-- Forgets an attempt's oldest log lines. ?1 seq, ?2 version, ?3 the newest line to forget.
delete from windlass_log
where seq = ?1 and version = ?2 and line <= ?3;
