-- Records of workflows. $1 sequences. By workflow_seq_key.
select workflow, seq, name, created_at, pruned from windlass.workflow where seq = any($1::bigint[])
