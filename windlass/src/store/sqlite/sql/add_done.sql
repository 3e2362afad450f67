-- Ends a job. Parameters in table order.
insert into windlass_done (seq, lane, state, ended, priority, deadline, flags, attempt, failures, lost, generation, version, position, scheduled_at, started_at, updated_at, outcome, token, worker, reason, fingerprint, result_type, result, prune_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24);
