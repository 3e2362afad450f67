-- A job's log lines, oldest first. ?1 seq. Primary key.
select version, at, text from windlass_log where seq = ?1 order by version, line;
