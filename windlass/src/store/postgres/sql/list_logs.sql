-- The log lines of a job, oldest first. $1 sequence. By log_pkey.
select version, at, text from windlass.log where seq = $1::bigint order by line
