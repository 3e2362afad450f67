-- Keeps a job's checkpoint. ?1 seq, ?2 the bytes.
insert into windlass_note (seq, checkpoint) values (?1, ?2)
on conflict (seq) do update set checkpoint = excluded.checkpoint;
