-- Removes records of workflows. $1 sequences. By workflow_seq_key.
delete from windlass.workflow where seq = any($1::bigint[])
