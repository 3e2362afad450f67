-- Forgets the log lines of a job's oldest attempts. ?1 seq, ?2 the newest version to forget.
delete from windlass_log
where seq = ?1 and version <= ?2;
