-- Keeps a job's progress. ?1 seq, ?2 the progress.
insert into windlass_note (seq, progress) values (?1, ?2)
on conflict (seq) do update set progress = excluded.progress;
