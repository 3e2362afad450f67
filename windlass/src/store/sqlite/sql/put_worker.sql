-- Notes that a worker lives. ?1 id, ?2 report, ?3 now.
insert into windlass_worker (id, report, started_at, seen_at) values (?1, ?2, ?3, ?3)
on conflict (id) do update set report = excluded.report, seen_at = excluded.seen_at;
