-- Whether a job exists and has not ended: 1 or 0. ?1 seq. Primary keys.
select exists (select 1 from windlass_job where seq = ?1) and not exists (select 1 from windlass_done where seq = ?1);
