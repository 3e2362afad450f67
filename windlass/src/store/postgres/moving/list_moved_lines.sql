-- Log lines of jobs, oldest first. $1 sequences. By log_pkey.
select seq, version, at, text from windlass.log where seq = any($1::bigint[]) order by seq, version, line
