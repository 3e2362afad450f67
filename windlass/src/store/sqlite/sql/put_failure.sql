-- Keeps a job's last failure. ?1 seq, ?2 the failure or null.
insert into windlass_note (seq, failure) values (?1, ?2)
on conflict (seq) do update set failure = excluded.failure;
