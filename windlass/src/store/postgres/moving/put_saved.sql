-- Keeps progress and checkpoints of jobs. $1 sequences, $2 progress, $3 checkpoints. By job_pkey.
update windlass.job j
set progress = i.progress, checkpoint = i.checkpoint
from unnest($1::bigint[], $2::text[], $3::bytea[]) as i(seq, progress, checkpoint)
where j.seq = i.seq
