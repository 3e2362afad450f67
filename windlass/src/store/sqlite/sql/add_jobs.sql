-- Keeps eight jobs that say nothing special; for each the parameters of add_plain_job.sql.
insert into windlass_job (seq, id, lane, priority, created_at, depth, payload)
values
    (?1, ?2, ?3, ?4, ?5, 1, ?6),
    (?7, ?8, ?9, ?10, ?11, 1, ?12),
    (?13, ?14, ?15, ?16, ?17, 1, ?18),
    (?19, ?20, ?21, ?22, ?23, 1, ?24),
    (?25, ?26, ?27, ?28, ?29, 1, ?30),
    (?31, ?32, ?33, ?34, ?35, 1, ?36),
    (?37, ?38, ?39, ?40, ?41, 1, ?42),
    (?43, ?44, ?45, ?46, ?47, 1, ?48);
