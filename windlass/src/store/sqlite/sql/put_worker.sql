-- Notes that a worker lives; gives whether it is to take no more jobs. ?1 id, ?2 report, ?3 now, ?4 whether it takes its leave.
insert into windlass_worker (id, report, started_at, seen_at) values (?1, ?2, ?3, ?3)
on conflict (id) do update set report = excluded.report, seen_at = excluded.seen_at, draining = draining and not ?4
returning draining;
